"""Connecting an agent and taking that back, with a record of what its files were and what was made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from burnish.proxy.agents import files
from burnish.proxy.agents.base import Change, Keys
from burnish.proxy.agents.changes import KINDS
from burnish.proxy.errors import ConfigError

FOLDER = "connections"
"""In the data directory: a record for each connected agent."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was made of one file."""

    path: str
    kind: str
    """That of the change."""
    mode: int
    """Permission bits before; of a new file, those that it was given."""
    before: str | None
    """Its text, less what an earlier connection had put there; None: there was no file."""
    after: str
    folders: tuple[str, ...]
    """Those that were made for it, innermost first."""
    units: tuple[Keys, ...] = ()
    """Tables of settings that are all ours."""
    private: bool = False
    """Whether nobody but its owner may read it, now that a key stands in it."""

    @property
    def mode_made(self) -> int:
        """Permission bits while it is connected."""
        return self.mode & ~files.OTHERS if self.private else self.mode


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be made of one file, and what it is now."""

    written: Written
    now: str | None
    mode: int

    @property
    def changes(self) -> bool:
        """Whether anything is left to do."""
        return self.written.after != self.now or self.written.mode_made != self.mode


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one file."""

    path: Path
    what: Literal["changed", "unchanged", "restored", "removed", "left"]
    """restored: it says what it said before; removed: it was burnish's; left: it still says what burnish put there."""
    why: str = ""
    """Of left."""


def connect(changes: Sequence[Change], record: Path, *, private: bool = False) -> list[Done]:
    """Make an agent's changes, all or none; where they were made before, anew. Raises ConfigError.

    ``private``: a key is among them, so nobody but their owner may read the files while they are connected.
    """
    earlier = {written.path: written for written in recorded(record)}
    plan = [_planned(change, earlier.get(str(change.path)), private) for change in changes]
    replaced = {each.written.path for each in plan}
    # The record first: whatever happens between here and the last file, it can be taken back.
    kept = [written for path, written in earlier.items() if path not in replaced]
    _record(record, [*kept, *(each.written for each in plan)])
    for index, each in enumerate(plan):
        written = each.written
        try:
            if each.changes:
                files.write(Path(written.path), written.after, written.mode_made)
        except OSError as error:
            for done in plan[: index + 1]:
                with suppress(OSError):
                    _put_back(done.written, done.now, done.mode)
            _record(record, list(earlier.values()))
            raise ConfigError(f"{written.path} cannot be written: {error.strerror}") from error
    return [Done(Path(each.written.path), "changed" if each.changes else "unchanged") for each in plan]


def disconnect(record: Path) -> list[Done]:
    """Take back what a record says, byte for byte where nobody changed a file since. Raises ConfigError."""
    done = {written: _taken_back(written) for written in recorded(record)}
    # What is left can be taken back once it is mended.
    _record(record, [written for written, each in done.items() if each.what == "left"])
    return list(done.values())


def recorded(record: Path) -> list[Written]:
    """Return what was made of an agent's files; nothing when it is not connected. Raises ConfigError."""
    try:
        said = json.loads(record.read_text(encoding="utf-8"))["files"]
        return [_written(each) for each in said]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{record}, where burnish keeps what it changed, cannot be read: {error}"
        ) from error


def _written(said: dict[str, Any]) -> Written:
    lists = {"folders": tuple(said["folders"]), "units": tuple(map(tuple, said["units"]))}
    return Written(**said | lists)


def _planned(change: Change, earlier: Written | None, private: bool) -> Planned:
    """Return what is to be made of a file. Raises ConfigError."""
    path = change.path
    try:
        now, mode = files.read(path) or (None, files.OWNER_ONLY)
        before = _without(earlier, now) if earlier and now is not None else now
        after = change.made(before)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} was left as it is: {error}. To write it there yourself: burnish connect … --print"
        ) from error
    folders = earlier.folders if earlier else tuple(map(str, files.missing_folders(path)))
    mode_before = _mode_before(earlier, mode) if earlier else mode
    written = Written(
        str(path), change.kind, mode_before, before, after, folders, tuple(change.units), private
    )
    return Planned(written, now, mode)


def _taken_back(written: Written) -> Done:
    path = Path(written.path)
    try:
        now, mode = files.read(path) or (None, written.mode)
        rest = None if now is None else _without(written, now)
        if rest == now:
            return Done(path, "unchanged")
        _put_back(written, rest, _mode_before(written, mode))
    except OSError as error:
        return Done(path, "left", f"it cannot be written: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return Done(path, "left", str(error))
    return Done(path, "removed" if rest is None else "restored")


def _mode_before(written: Written, now: int) -> int:
    """Return the permission bits that a file had before, unless somebody changed them since."""
    return written.mode if now == written.mode_made else now


def _put_back(written: Written, text: str | None, mode: int) -> None:
    path = Path(written.path)
    if text is None:
        files.remove(path, list(map(Path, written.folders)))
    else:
        files.write(path, text, mode)


def _without(written: Written, now: str) -> str | None:
    """Return a file's text less what was put there; None: there is nothing left of it. Raises ValueError."""
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
        files.write(record, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError(
            f"{record}, where burnish keeps what it changes, cannot be written: {error}"
        ) from error
