"""What ``burnish init`` would change. Planning checks everything that can be checked, and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from burnish.adapters.hosts.fetch import cache_path
from burnish.parts import user_files
from burnish.parts.connect import AGENTS, FileChange, Home, Place, connection
from burnish.parts.desktop.init.answers import SetupAnswers
from burnish.parts.desktop.init.record import OWN, SetupRecord, file_of
from burnish.parts.desktop.init.settings_file import Setting, SettingsFile
from burnish.proxy.http.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Part:
    """The files of one program: an agent's, or burnish's own."""

    name: str
    changes: Sequence[FileChange]
    planned: Sequence[connection.PlannedChange]

    @property
    def differs(self) -> bool:
        return any(change.changes for change in self.planned)


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
    """The record of an earlier ``init``."""

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
        parts += [part] if part.differs else []
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
