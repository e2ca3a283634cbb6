"""Connect and disconnect an agent, with a record of its files before and after."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from burnish.parts import user_files
from burnish.parts.connect.base import Change, Keys, Place, Remote
from burnish.parts.connect.changes import KINDS
from burnish.proxy.http.errors import ConfigError

FOLDER = "connections"
"""Directory in the data directory, with a record for each connected agent."""


def record_file(data_dir: Path, name: str) -> Path:
    """Return the path of the record of an agent."""
    return data_dir / FOLDER / f"{name}.json"


def remote_file(data_dir: Path, name: str) -> Path:
    """Return the path of the record of an agent that was connected by its API."""
    return data_dir / FOLDER / f"{name}.remote.json"


def connect_remote(remote: Remote, place: Place, record: Path) -> Sequence[str]:
    """Connect an agent by its API. Raises ConfigError."""
    # The record comes first: even after a failure in the middle, everything can be undone.
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    user_files.write(record, json.dumps({"api": place.api}) + "\n")
    return remote.connect(place)


def disconnect_remote(remote: Remote, record: Path) -> Sequence[str]:
    """Undo it; nothing if there is no record. Raises ConfigError."""
    if not record.exists():
        return []
    done = remote.disconnect(json.loads(record.read_text("utf-8"))["api"])
    record.unlink()
    return done


@dataclass(frozen=True, slots=True)
class Written:
    """The change of one file, as recorded."""

    path: str
    kind: str
    mode: int
    """Permission bits before the change; of a new file, its first ones."""
    before: str | None
    """Text before the change and without earlier connections; None: there was no file."""
    after: str
    folders: tuple[str, ...]
    """Directories created for it, innermost first."""
    units: tuple[Keys, ...] = ()
    """Tables of settings that belong to burnish as a whole."""
    private: bool = False
    """Whether only its owner may read it, because it contains a key."""

    @property
    def mode_made(self) -> int:
        """Permission bits while it is connected."""
        return self.mode & ~user_files.OTHERS if self.private else self.mode


@dataclass(frozen=True, slots=True)
class Planned:
    """The change of one file, and its present state."""

    written: Written
    now: str | None
    mode: int

    @property
    def changes(self) -> bool:
        return self.written.after != self.now or self.written.mode_made != self.mode


@dataclass(frozen=True, slots=True)
class Done:
    """The result for one file."""

    path: Path
    what: Literal["changed", "unchanged", "restored", "removed", "left"]
    """restored: its old content is back; removed: it belonged to burnish; left: burnish's change couldn't be undone."""
    why: str = ""
    """The reason for "left"."""


def connect(changes: Sequence[Change], record: Path, *, private: bool = False) -> list[Done]:
    """Make all changes of an agent, or none. Repeats earlier ones. Raises ConfigError.

    ``private``: the changes contain a key, so only the owner may read the files while the agent is connected.
    """
    earlier = {written.path: written for written in recorded(record)}
    plan = planned(changes, record, private=private)
    replaced = {each.written.path for each in plan}
    others = [written for path, written in earlier.items() if path not in replaced]
    with user_files.all_or_nothing([record, *(change.path for change in changes)]):
        # The record comes first: even after a crash in the middle, everything can be undone.
        _record(record, [*others, *(each.written for each in plan)])
        for each in plan:
            if each.changes:
                _write(each.written)
    return [Done(Path(each.written.path), "changed" if each.changes else "unchanged") for each in plan]


def planned(changes: Sequence[Change], record: Path, *, private: bool = False) -> list[Planned]:
    """Work out what ``connect`` would do; writes nothing. Raises ConfigError."""
    earlier = {written.path: written for written in recorded(record)}
    return [_planned(change, earlier.get(str(change.path)), private) for change in changes]


def disconnect(record: Path) -> list[Done]:
    """Undo a record; byte for byte in files that are unchanged since. Raises ConfigError."""
    done = {written: _undone(written) for written in recorded(record)}
    # Files that are left can be undone later, once they are fixed.
    _record(record, [written for written, each in done.items() if each.what == "left"])
    return list(done.values())


def recorded(record: Path) -> list[Written]:
    """Return the recorded changes; none if the agent isn't connected. Raises ConfigError."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))["files"]
        return [_written(each) for each in content]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"can't read {record}, the record of the changed files: {error}") from error


def _written(content: dict[str, Any]) -> Written:
    lists = {"folders": tuple(content["folders"]), "units": tuple(map(tuple, content["units"]))}
    return Written(**content | lists)


def _planned(change: Change, earlier: Written | None, private: bool) -> Planned:
    """Work out the change of a file. Raises ConfigError."""
    path = change.path
    try:
        now, mode = user_files.read(path) or (None, user_files.OWNER_ONLY)
        before = _without(earlier, now) if earlier and now is not None else now
        after = change.made(before)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} wasn't changed: {error}. To see the settings and add them yourself: burnish connect … --print"
        ) from error
    folders = earlier.folders if earlier else tuple(map(str, user_files.missing_folders([path])))
    mode_before = _mode_before(earlier, mode) if earlier else mode
    written = Written(
        str(path), change.kind, mode_before, before, after, folders, tuple(change.units), private
    )
    return Planned(written, now, mode)


def _undone(written: Written) -> Done:
    path = Path(written.path)
    try:
        now, mode = user_files.read(path) or (None, written.mode)
        rest = None if now is None else _without(written, now)
        if rest == now:
            return Done(path, "unchanged")
        if rest is None:
            user_files.remove(path)
            user_files.remove_empty(map(Path, written.folders))
        else:
            user_files.write(path, rest, _mode_before(written, mode))
    except OSError as error:
        return Done(path, "left", f"can't write it: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return Done(path, "left", str(error))
    return Done(path, "removed" if rest is None else "restored")


def _mode_before(written: Written, now: int) -> int:
    """Return the old permission bits, or the present ones if they were changed since."""
    return written.mode if now == written.mode_made else now


def _write(written: Written) -> None:
    """Raises ConfigError."""
    try:
        user_files.write(Path(written.path), written.after, written.mode_made)
    except OSError as error:
        raise ConfigError(f"can't write {written.path}: {error.strerror}") from error


def _without(written: Written, now: str) -> str | None:
    """Return the text of a file without our change; None if nothing is left. Raises ValueError."""
    if now in (written.before, written.after):
        return written.before
    rest = KINDS[written.kind](now, written.before or "", written.after, written.units)
    return None if written.before is None and "".join(rest.split()) in ("", "{}") else rest


def _record(record: Path, written: list[Written]) -> None:
    if not written:
        record.unlink(missing_ok=True)
        return
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {"files": [asdict(each) for each in written]}
        user_files.write(record, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError(f"can't write {record}, the record of the changed files: {error}") from error
