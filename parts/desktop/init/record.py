"""The record of what ``burnish init`` did. With the records of the changed files, it is all that undoing needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from burnish.proxy.http.errors import ConfigError
from burnish.system import durable

FILE = "init.json"
OWN = "burnish"
"""The name under which the change of burnish's own configuration is recorded, beside those of the agents."""


@dataclass(frozen=True, slots=True)
class SetupRecord:
    agents: tuple[str, ...] = ()
    """Agents that were connected."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Agents that the user had connected before, to another place, with the text of their records."""
    service: bool = False
    """Whether a service was installed."""
    folders: tuple[str, ...] = ()
    """Directories created for the data directory, innermost first."""
    cache: tuple[str, ...] = ()
    """The directory for downloads and those above it, innermost first, if they weren't there."""

    @classmethod
    def read(cls, data_dir: Path) -> Self | None:
        """Return the record; None if there is none. Raises ConfigError."""
        try:
            content = json.loads((data_dir / FILE).read_text(encoding="utf-8"))
            content |= {name: tuple(content[name]) for name in ("agents", "folders", "cache")}
            return cls(**content)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"can't read {data_dir / FILE}, the record of burnish init: {error}") from error

    def write(self, data_dir: Path) -> None:
        """Raises OSError."""
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(data_dir / FILE, json.dumps(asdict(self), indent=2) + "\n")


def file_of(data_dir: Path) -> Path:
    return data_dir / FILE
