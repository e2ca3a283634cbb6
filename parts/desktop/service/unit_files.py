"""The files that a service manager reads: each carries a mark, by which burnish knows its own again.

A file without the mark, or one that was edited since, is somebody's: it is never overwritten or lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from burnish.parts import user_files
from burnish.proxy.http.errors import ServiceError

MARK = "Written by `burnish service install` ({digest}, new folders: {folders})"
_MARK = re.compile(re.escape(MARK).replace(r"\{digest\}", "([0-9a-f]{16})").replace(r"\{folders\}", r"(\d+)"))
ASIDE = ".before-burnish"
"""Ending of a foreign file that was put aside. Service managers ignore it."""
EDITED = ".edited"
"""Ending of an installed file that the user changed, once the service is uninstalled."""


@dataclass(frozen=True)
class UnitFile:
    path: Path
    text: str
    """The content; ``{mark}`` stands in a comment of it."""

    def content(self, folders: int) -> str:
        """Return the text with its mark. ``folders`` counts the parents that were made for the file."""
        return self.text.replace("{mark}", MARK.format(digest=_digest(self.text), folders=folders))

    def is_there(self) -> bool:
        """Whether exactly this file is installed."""
        mark = _MARK.search(there := _read(self.path))
        return mark is not None and there == self.content(int(mark[2]))

    def write(self) -> None:
        """Write the file. Raises OSError."""
        if mark := _MARK.search(_read(self.path)):
            folders = int(mark[2])
        else:
            folders = sum(not folder.exists() for folder in self.path.parents)
        user_files.write(self.path, self.content(folders))


def is_ours(path: Path) -> bool:
    """Whether a file is as burnish wrote it."""
    mark = _MARK.search(there := _read(path))
    return mark is not None and _digest(there.replace(mark[0], "{mark}")) == mark[1]


def is_foreign(path: Path) -> bool:
    """Whether somebody else wrote or edited a file."""
    return _is_there(path) and not is_ours(path)


def check_free(files: Iterable[UnitFile], force: bool) -> None:
    """Raises ServiceError if a file that burnish must not overwrite stands in the way."""
    for file in files:
        if not is_foreign(file.path) or (force and not _is_there(_aside(file.path))):
            continue
        if force:
            raise ServiceError(f"{_aside(file.path)} exists already: move it away, or delete it")
        raise ServiceError(
            f"{file.path} exists, and burnish didn't write it as it is: remove it, or run "
            f"`burnish service install --force`, which keeps it as {_aside(file.path).name}"
        )


def put_aside(files: Iterable[UnitFile]) -> list[Path]:
    """Rename foreign files; returns their new paths. Raises OSError."""
    return [file.path.rename(_aside(file.path)) for file in files if is_foreign(file.path)]


def put_back(paths: Iterable[Path]) -> None:
    """Undo ``put_aside``. Raises OSError."""
    for path in paths:
        if _is_there(aside := _aside(path)):
            aside.rename(path)


def is_marked(path: Path) -> bool:
    """Whether burnish wrote a file, which may have been edited since."""
    return bool(_MARK.search(_read(path)))


def remove(paths: Iterable[Path]) -> list[Path]:
    """Remove installed files and the folders made for them; give files put aside their names back.

    Edited files are renamed instead; returns their new paths. Raises OSError.
    """
    edited_files, folders = [], {}
    for path in paths:
        if mark := _MARK.search(_read(path)):
            folders[path] = int(mark[2])
            if is_ours(path):
                path.unlink()
            else:
                edited_files.append(path.rename(path.with_name(path.name + EDITED)))
        if not _is_there(path) and _is_there(aside := _aside(path)):
            aside.rename(path)
    for path, count in folders.items():
        for folder in path.parents[:count]:
            with suppress(OSError):  # somebody uses it now
                folder.rmdir()
    return edited_files


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ASIDE)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _read(path: Path) -> str:
    """Return the text of a file; "" if there is none, or none that burnish could have written."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
