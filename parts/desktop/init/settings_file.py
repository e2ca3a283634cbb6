"""burnish's own configuration file as a file to change. Everything that isn't asked for stays as it was written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from burnish.parts.connect.base import Keys
from burnish.parts.connect.merging import NOTHING, Toml, at, with_entries


class Setting(NamedTuple):
    """A setting that gets another value."""

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
