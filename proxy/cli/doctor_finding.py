"""What the doctor says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    """warn: it works, but not all of it, or not for long; fail: it does not work."""
    what: str
    text: str
    """What was found and, unless it is fine, what to do."""
