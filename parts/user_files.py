"""Files of the user and of other programs: read as they are, replaced whole, and put back together after a failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from burnish.proxy.http.errors import ConfigError
from burnish.system import durable
from burnish.system.regular import check_regular

OWNER_ONLY = 0o600
"""Of files that we make: settings hold keys."""
LIMIT_BYTES = 16 * 1024**2
"""Settings have kilobytes; some agents also keep their history in the file."""
RECORD_LIMIT_BYTES = 16 * LIMIT_BYTES
"""Records of ours hold such files before and after a change, in JSON."""
OTHERS = 0o077
"""Permission bits of everybody but the owner."""


def read(path: Path) -> tuple[str, int] | None:
    """Return a file's text, line ends and all, and its permission bits; None: there is none. Raises ValueError."""
    try:
        content = _content(path, LIMIT_BYTES)
        return content and (content[0].decode(), content[1])
    except OSError as error:
        raise ValueError(f"can't read it: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError("it isn't UTF-8") from error


def write(path: Path, content: str | bytes, mode: int = OWNER_ONLY) -> None:
    """Replace a file, or the one that a link leads to, with the folders above it. Raises OSError."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(path, content, mode)


def remove(path: Path) -> None:
    """Remove a file, or the one that a link leads to. Raises OSError."""
    path.resolve().unlink(missing_ok=True)


def missing_folders(paths: Iterable[Path]) -> list[Path]:
    """Return the directories above some files that don't exist yet, innermost first."""
    missing = {folder for path in paths for folder in path.resolve().parents if not folder.exists()}
    return sorted(missing, key=lambda folder: len(folder.parts), reverse=True)


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of the directories that are empty, innermost first."""
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        with suppress(OSError):  # somebody put something into it, or it is gone
            folder.rmdir()


class Snapshot:
    """Files as they are now: bytes, permission bits, and the folders above them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Raises OSError."""
        self._contents = {path: _content(path, RECORD_LIMIT_BYTES) for path in paths}
        self._missing = missing_folders(self._contents)

    def restore(self) -> list[Path]:
        """Put the files back as they were, and remove new folders; return the files that couldn't be put back."""
        failed = [path for path in reversed(self._contents) if not self._restored(path)]
        remove_empty(self._missing)
        return failed

    def _restored(self, path: Path) -> bool:
        before = self._contents[path]
        try:
            if _content(path, RECORD_LIMIT_BYTES) != before:
                write(path, *before) if before else remove(path)
        except OSError:
            return False
        return True


@contextmanager
def all_or_nothing(paths: Iterable[Path]) -> Iterator[None]:
    """Put files back as they were if the block fails or is interrupted. Raises ConfigError, and what the block raises.

    A crash of this process leaves the files: what is needed to undo them must be on the disk first.
    """
    try:
        snapshot = Snapshot(paths)
    except OSError as error:
        raise ConfigError(f"nothing was changed: {error}") from error
    try:
        yield
    except BaseException as error:  # Ctrl-C, too
        if failed := snapshot.restore():
            names = ", ".join(map(str, failed))
            raise ConfigError(f"{error or 'interrupted'}; and couldn't be put back: {names}") from error
        raise


def _content(path: Path, limit_bytes: int) -> tuple[bytes, int] | None:
    """Return a file's content and permission bits; None: there is none. Raises OSError."""
    try:
        check_regular(path, limit_bytes)
        return path.read_bytes(), path.stat().st_mode & 0o7777
    except (FileNotFoundError, NotADirectoryError):
        return None
