"""Files as they are now, to put them back if a later step fails."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from burnish.proxy.agents import files


class Snapshot:
    def __init__(self, paths: Iterable[Path]) -> None:
        """Read the files. Raises ValueError."""
        self._files = {path: files.read(path) for path in paths}
        self._missing = missing_folders(self._files)

    def restore(self) -> list[Path]:
        """Put the files back as they were, and remove new folders; return the files that couldn't be put back."""
        failed = [path for path in reversed(self._files) if not self._restored(path)]
        remove_empty(self._missing)
        return failed

    def _restored(self, path: Path) -> bool:
        before = self._files[path]
        try:
            if files.read(path) == before:
                return True
            if before is None:
                files.remove(path, [])
            else:
                files.write(path, *before)
        except (OSError, ValueError):
            return False
        return True


def missing_folders(paths: Iterable[Path]) -> list[Path]:
    """Return the directories above some files that don't exist yet, innermost first."""
    missing = {folder for path in paths for folder in path.resolve().parents if not folder.exists()}
    return sorted(missing, key=lambda folder: len(folder.parts), reverse=True)


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of the directories that are empty, innermost first."""
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with suppress(OSError):  # somebody put something into it, or it is gone
            folder.rmdir()
