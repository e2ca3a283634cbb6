"""What ``burnish init`` would change, and its record. Planning checks all that can be checked, and writes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from burnish.adapters.hosts.fetch import cache_path
from burnish.parts import user_files
from burnish.parts.connect import AGENTS, FileChange, Home, Place, connection
from burnish.parts.connect.base import Keys
from burnish.parts.connect.changes import NOTHING, Toml, at, with_entries
from burnish.proxy.http.errors import ConfigError
from burnish.system import durable

FILE = "init.json"
OWN = "burnish"
"""The name under which the change of burnish's own configuration is recorded, beside those of the agents."""


@dataclass(frozen=True, slots=True)
class SetupRecord:
    agents: tuple[str, ...] = ()
    """Agents that were connected."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Agents that the user had connected before, to another place, with the text of their records."""
    service: bool = False
    """Whether a service was installed."""
    folders: tuple[str, ...] = ()
    """Directories created for the data directory, innermost first."""
    cache: tuple[str, ...] = ()
    """The directory for downloads and those above it, innermost first, if they weren't there."""

    @classmethod
    def read(cls, data_dir: Path) -> Self | None:
        """Return the record; None if there is none. Raises ConfigError."""
        try:
            content = json.loads((data_dir / FILE).read_text(encoding="utf-8"))
            content |= {name: tuple(content[name]) for name in ("agents", "folders", "cache")}
            return cls(**content)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"can't read {data_dir / FILE}, the record of burnish init: {error}") from error

    def write(self, data_dir: Path) -> None:
        """Raises OSError."""
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(data_dir / FILE, json.dumps(asdict(self), indent=2) + "\n")


def file_of(data_dir: Path) -> Path:
    return data_dir / FILE


@dataclass(frozen=True, slots=True)
class SetupAnswers:
    agents: tuple[str, ...]
    """Names of the agents that use burnish."""
    upstream: str | None
    """URL of the engine; None: the embedded engine."""
    model: str | None
    """A GGUF file for the embedded engine, else the model that ``default`` stands for; None: burnish chooses."""
    preset: str
    schedule: str
    port: int
    service: bool
    """Whether burnish starts at login."""
    base: str | None = None
    """The weights that the engine serves; None: it tells."""

    def entries(self) -> list[tuple[Keys, Any]]:
        """Return the keys of the configuration file with their values; None: the key must be absent."""
        return [
            (("upstream",), self.upstream),
            (("model",), self.model),
            (("port",), self.port),
            (("train", "preset"), self.preset),
            (("train", "schedule"), self.schedule),
            (("train", "base"), self.base),
        ]

    def flags(self) -> dict[str, Any]:
        """Return the settings in the form that ``load_config`` takes."""
        train = {"preset": self.preset, "schedule": self.schedule, "base": self.base}
        return {"upstream": self.upstream, "model": self.model, "port": self.port, "train": train}


class Setting(NamedTuple):
    name: str
    old: Any
    """None: it wasn't set."""
    new: Any
    """None: it is removed."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    path: Path
    entries: Sequence[tuple[Keys, Any]]
    """None as a value: the key must be absent."""
    onto: str | None = None
    """The present text, if the user has edited the file since an earlier ``init``; that text is changed further."""
    kind: ClassVar[str] = Toml.name
    units: ClassVar[Collection[Keys]] = ()

    def made(self, text: str | None) -> str:
        how, start = Toml(), self.onto if self.onto is not None else text or ""
        there = how.parse(start)
        # A value that is there already keeps its spelling and its comment.
        new = with_entries(
            how,
            start,
            [(path, content) for path, content in self.entries if content not in (None, at(there, path))],
        )
        for path, content in self.entries:
            if content is None:
                new = how.remove(new, path)
        return new

    def differences(self, text: str | None) -> list[Setting]:
        """Return the settings that get another value. Raises ValueError."""
        there = Toml().parse(text or "")
        pairs = [(path, at(there, path), content) for path, content in self.entries]
        return [
            Setting(".".join(map(str, path)), None if old is NOTHING else old, new)
            for path, old, new in pairs
            if (None if old is NOTHING else old) != new
        ]


@dataclass(frozen=True, slots=True)
class Part:
    """The files of one program: an agent's, or burnish's own."""

    name: str
    changes: Sequence[FileChange]
    planned: Sequence[connection.PlannedChange]


@dataclass(frozen=True, slots=True)
class SetupPlan:
    answers: SetupAnswers
    data_dir: Path
    parts: Sequence[Part]
    """burnish's own first; only those in which something changes."""
    settings: Sequence[Setting]
    """The settings that get another value."""
    dropped: Sequence[str]
    """Agents that an earlier ``init`` connected, and that shall no longer use burnish."""
    private: bool
    """Whether the changes hold a key."""
    record: SetupRecord
    """The record as it will be."""
    earlier: SetupRecord | None

    @property
    def installs_service(self) -> bool:
        return self.record.service and not (self.earlier and self.earlier.service)

    @property
    def removes_service(self) -> bool:
        return bool(self.earlier and self.earlier.service) and not self.record.service

    @property
    def changes_anything(self) -> bool:
        return bool(self.parts or self.dropped or self.installs_service or self.removes_service)

    def paths(self) -> Iterator[Path]:
        """Return all files that carrying it out may touch."""
        yield file_of(self.data_dir)
        for part in self.parts:
            yield connection.record_file(self.data_dir, part.name)
            yield from (change.path for change in part.changes)
        for name in self.dropped:
            record = connection.record_file(self.data_dir, name)
            yield record
            yield from (Path(change.path) for change in connection.recorded(record))


def make_plan(
    answers: SetupAnswers,
    place: Place,
    file: Path,
    data_dir: Path,
    home: Home,
    *,
    users_service: bool = False,
) -> SetupPlan:
    """Work out and check all changes.

    ``place``: burnish as agents will see it; ``file``: burnish's configuration file; ``users_service``: the service
    was installed by the user. Raises ConfigError.
    """
    _check_writable(file_of(data_dir))
    earlier = SetupRecord.read(data_dir)
    private = place.key is not None
    settings = _settings_file(file, answers, data_dir)
    own = _part(OWN, [settings], data_dir, private=False)
    differences = settings.differences(own.planned[0].text)
    # A key that only moved within the file is no reason to write it again.
    parts = [own] if differences else []
    for name in answers.agents:
        try:
            part = _part(name, AGENTS[name].changes(place, home), data_dir, private=private)
        except ConfigError as error:
            raise ConfigError(f"{error}. Or leave {name} out of --agents") from error
        parts += [part] if any(change.changes for change in part.planned) else []
    plan = SetupPlan(
        answers,
        data_dir,
        parts,
        differences,
        [name for name in (earlier.agents if earlier else ()) if name not in answers.agents],
        private,
        replace(
            _record(answers.agents, parts, data_dir, earlier or _first_record(data_dir, home)),
            service=answers.service and not users_service,
        ),
        earlier,
    )
    for path in plan.paths():
        _check_writable(path)
    return plan


def _settings_file(file: Path, answers: SetupAnswers, data_dir: Path) -> SettingsFile:
    """Raises ConfigError."""
    try:
        text = (user_files.read(file) or (None,))[0]
        recorded = connection.recorded(connection.record_file(data_dir, OWN))
        edited = any(text not in (change.before, change.after) for change in recorded)
        settings = SettingsFile(file, answers.entries(), text if edited else None)
        settings.made(text)
    except ValueError as error:
        raise ConfigError(f"{file} can't be changed: {error}") from error
    return settings


def _part(name: str, changes: Sequence[FileChange], data_dir: Path, *, private: bool) -> Part:
    record = connection.record_file(data_dir, name)
    return Part(name, changes, connection.planned(changes, record, private=private))


def _first_record(data_dir: Path, home: Home) -> SetupRecord:
    cache = cache_path(home.path, home.env) / "models"
    return SetupRecord(
        folders=tuple(map(str, user_files.missing_folders([file_of(data_dir)]))),
        cache=tuple(map(str, user_files.missing_folders([cache]))),
    )


def _record(
    agents: Sequence[str], parts: Sequence[Part], data_dir: Path, earlier: SetupRecord
) -> SetupRecord:
    names, replaced = set(earlier.agents), dict(earlier.replaced)
    for part in parts:
        record = connection.record_file(data_dir, part.name)
        if part.name == OWN or part.name in names or part.name in replaced:
            continue
        if record.exists():
            replaced[part.name] = record.read_text(encoding="utf-8")
        else:
            names.add(part.name)
    own_agents = tuple(name for name in AGENTS if name in names and name in agents)
    return replace(earlier, agents=own_agents, replaced=replaced)


def _check_writable(path: Path) -> None:
    """Raises ConfigError."""
    target = path.resolve()
    folder = next(parent for parent in target.parents if parent.exists())
    if not folder.is_dir():
        raise ConfigError(f"can't write {path}: {folder} is a file, not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"can't write {path}: you may not write in {folder}")
