"""Parts of users: classes that ``parts`` in their configuration file names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from burnish.config.config import Config
from burnish.parts.hooks import Part
from burnish.proxy.http.errors import ConfigError


def foreign_parts(config: Config) -> list[Part]:
    """Return an instance of each class. Raises ConfigError."""
    parts = [_part(name, config.file.parent) for name in config.parts if config.file]
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"parts: two parts are called {name!r}: give one of them another name", param="parts"
            )
    return parts


def _part(path: str, folder: Path) -> Part:
    module, _, attribute = path.partition(":")
    try:
        with _found_in(folder):
            kind = getattr(import_module(module), attribute)
        if not (isinstance(kind, type) and issubclass(kind, Part)):
            raise TypeError(f"{attribute} is no subclass of burnish.parts.hooks.Part")
        part = kind()
    except Exception as error:  # whatever a stranger's module raises
        raise ConfigError(
            f"parts: {path} can't be loaded: {error}. burnish looks for {module}.py in {folder}, then among the "
            "installed packages",
            param="parts",
        ) from error
    kind.name = kind.name or module
    return part


@contextmanager
def _found_in(folder: Path) -> Iterator[None]:
    """Import from a folder first, and never from the current one: it may be somebody else's repository."""
    here = Path.cwd()
    before = sys.path[:]
    sys.path[:] = [str(folder), *(entry for entry in before if entry and Path(entry).absolute() != here)]
    try:
        yield
    finally:
        sys.path[:] = before
