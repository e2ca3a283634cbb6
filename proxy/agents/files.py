"""Other people's files: read as they are, replaced whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from burnish.adapters import durable
from burnish.adapters.regular import check_regular

OWNER_ONLY = 0o600
"""Of files that we make: settings hold keys."""
LIMIT_BYTES = 16 * 1024**2
"""Settings have kilobytes; some agents also keep their history in the file."""
OTHERS = 0o077
"""Permission bits of everybody but the owner."""


def read(path: Path) -> tuple[str, int] | None:
    """Return a file's text, line ends and all, and its permission bits; None: there is none. Raises ValueError."""
    try:
        check_regular(path, LIMIT_BYTES)
        content, mode = path.read_bytes(), path.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"can't read it: {error.strerror}") from error
    try:
        return content.decode(), mode & 0o7777
    except UnicodeDecodeError as error:
        raise ValueError("it isn't UTF-8") from error


def write(path: Path, text: str, mode: int = OWNER_ONLY) -> None:
    """Replace a file, or the one that a link leads to, with the folders above it. Raises OSError."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(path, text, mode)


def remove(path: Path, folders: list[Path]) -> None:
    """Remove a file, or the one that a link leads to, and those of some folders that are empty then, innermost first.

    Raises OSError.
    """
    path.resolve().unlink(missing_ok=True)
    for folder in folders:
        with suppress(OSError):  # somebody put something into it
            folder.rmdir()
