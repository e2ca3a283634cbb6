"""Connect and disconnect an agent, with a record of its files before and after."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from burnish.parts import user_files
from burnish.parts.connect.base import FileChange, Keys, Place, Remote
from burnish.parts.connect.changes import KINDS
from burnish.proxy.http.errors import ConfigError

FOLDER = "connections"
"""Directory in the data directory, with a record for each connected agent."""


def record_file(data_dir: Path, name: str) -> Path:
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
    lines = remote.disconnect(json.loads(record.read_text("utf-8"))["api"])
    record.unlink()
    return lines


@dataclass(frozen=True, slots=True)
class RecordedChange:
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
    profile: str = ""
    """The settings file of the profile that it belongs to; "": recorded before there were several."""

    @property
    def mode_made(self) -> int:
        """Permission bits while it is connected."""
        return self.mode & ~user_files.OTHERS if self.private else self.mode


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The change of one file, and its present state."""

    record: RecordedChange
    text: str | None
    mode: int

    @property
    def changes(self) -> bool:
        return self.record.after != self.text or self.record.mode_made != self.mode


@dataclass(frozen=True, slots=True)
class FileOutcome:
    path: Path
    what: Literal["changed", "unchanged", "restored", "removed", "left"]
    """restored: its old content is back; removed: it belonged to burnish; left: burnish's change couldn't be undone."""
    why: str = ""
    """The reason for "left"."""


def connect(changes: Sequence[FileChange], record: Path, *, private: bool = False) -> list[FileOutcome]:
    """Make all changes of an agent, or none. Repeats earlier ones. Raises ConfigError.

    ``private``: the changes contain a key, so only the owner may read the files while the agent is connected.
    """
    earlier = {change.path: change for change in recorded(record)}
    plan = planned(changes, record, private=private)
    replaced = {step.record.path for step in plan}
    remaining = [change for path, change in earlier.items() if path not in replaced]
    plan = [replace(step, record=replace(step.record, profile=profile_of(changes))) for step in plan]
    with user_files.all_or_nothing([record, *(change.path for change in changes)]):
        # The record comes first: even after a crash in the middle, everything can be undone.
        _record(record, [*remaining, *(step.record for step in plan)])
        for step in plan:
            if step.changes:
                _write(step.record)
    return [FileOutcome(Path(step.record.path), "changed" if step.changes else "unchanged") for step in plan]


def profile_of(changes: Sequence[FileChange]) -> str:
    """Return the settings file that the others belong to: an agent may have several, named by its variables."""
    return str(changes[0].path) if changes else ""


def planned(changes: Sequence[FileChange], record: Path, *, private: bool = False) -> list[PlannedChange]:
    """Work out what ``connect`` would do; writes nothing. Raises ConfigError."""
    earlier = {change.path: change for change in recorded(record)}
    return [_planned(change, earlier.get(str(change.path)), private) for change in changes]


def disconnect(record: Path, profile: str = "") -> list[FileOutcome]:
    """Undo a record, or what it has of a profile; byte for byte in files that are unchanged since.

    Raises ConfigError.
    """
    changes = recorded(record)
    outcomes = {
        change: _undone(change) for change in changes if not profile or change.profile in ("", profile)
    }
    # Files that are left can be undone later, once they are fixed.
    _record(
        record,
        [change for change in changes if change not in outcomes or outcomes[change].what == "left"],
    )
    return list(outcomes.values())


def recorded(record: Path) -> list[RecordedChange]:
    """Return the recorded changes; none if the agent isn't connected. Raises ConfigError."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))["files"]
        return [_written(fields) for fields in content]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"can't read {record}, the record of the changed files: {error}") from error


def _written(content: dict[str, Any]) -> RecordedChange:
    lists = {"folders": tuple(content["folders"]), "units": tuple(map(tuple, content["units"]))}
    return RecordedChange(**content | lists)


def _planned(change: FileChange, earlier: RecordedChange | None, private: bool) -> PlannedChange:
    """Work out the change of a file. Raises ConfigError."""
    path = change.path
    try:
        text, mode = user_files.read(path) or (None, user_files.OWNER_ONLY)
        old_text = _without(earlier, text) if earlier and text is not None else text
        new_text = change.made(old_text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} wasn't changed: {error}. To see the settings and add them yourself: burnish connect AGENT --print"
        ) from error
    folders = earlier.folders if earlier else tuple(map(str, user_files.missing_folders([path])))
    mode_before = _mode_before(earlier, mode) if earlier else mode
    record = RecordedChange(
        str(path), change.kind, mode_before, old_text, new_text, folders, tuple(change.units), private
    )
    return PlannedChange(record, text, mode)


def _undone(change: RecordedChange) -> FileOutcome:
    path = Path(change.path)
    try:
        text, mode = user_files.read(path) or (None, change.mode)
        old_text = None if text is None else _without(change, text)
        if old_text == text:
            return FileOutcome(path, "unchanged")
        if old_text is None:
            user_files.remove(path)
            user_files.remove_empty(map(Path, change.folders))
        else:
            user_files.write(path, old_text, _mode_before(change, mode))
    except OSError as error:
        return FileOutcome(path, "left", f"can't write it: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return FileOutcome(path, "left", str(error))
    return FileOutcome(path, "removed" if old_text is None else "restored")


def _mode_before(change: RecordedChange, mode: int) -> int:
    """Return the old permission bits, or the present ones if they were changed since."""
    return change.mode if mode == change.mode_made else mode


def _write(change: RecordedChange) -> None:
    """Raises ConfigError."""
    try:
        user_files.write(Path(change.path), change.after, change.mode_made)
    except OSError as error:
        raise ConfigError(f"can't write {change.path}: {error.strerror}") from error


def _without(change: RecordedChange, text: str) -> str | None:
    """Return the text of a file without our change; None if nothing is left. Raises ValueError."""
    if text in (change.before, change.after):
        return change.before
    remainder = KINDS[change.kind](text, change.before or "", change.after, change.units)
    return None if change.before is None and "".join(remainder.split()) in ("", "{}") else remainder


def _record(record: Path, changes: list[RecordedChange]) -> None:
    if not changes:
        record.unlink(missing_ok=True)
        return
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {"files": [asdict(change) for change in changes]}
        user_files.write(record, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError(f"can't write {record}, the record of the changed files: {error}") from error
