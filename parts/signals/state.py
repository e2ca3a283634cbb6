"""What the reader of signals remembers over a restart: how far it read, and what it found last."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from burnish.system import durable

logger = logging.getLogger(__name__)

LATEST = 20
"""The latest findings, for ``burnish status``."""
SESSIONS = 1_000
"""Sessions that can't be trusted any more; older ones have ended."""


class SignalFinding(BaseModel):
    model_config = ConfigDict(frozen=True)

    completion_id: str
    at: float
    """Seconds since the epoch, UTC."""
    good: bool | None
    """None: no rating was given."""
    words: str


class SignalState(BaseModel):
    """``signals.json``."""

    model_config = ConfigDict(extra="ignore")

    upto: int | None = None
    """Number of the last row of the log that was read; None: none was yet."""
    given: int = 0
    """Ratings."""
    withheld: int = 0
    """Results that would have been a good rating, and can't be trusted."""
    latest: list[SignalFinding] = Field(default_factory=list)
    doubts: dict[str, str] = Field(default_factory=dict)
    """Why the results of a session can't be trusted, by caller and session."""

    def found(self, finding: SignalFinding) -> None:
        if finding.good is None:
            self.withheld += 1
        else:
            self.given += 1
        self.latest = [*self.latest, finding][-LATEST:]

    def doubted(self, session: str, why: str) -> None:
        self.doubts.setdefault(session, why)
        while len(self.doubts) > SESSIONS:
            del self.doubts[next(iter(self.doubts))]

    def erase(self, caller: str) -> None:
        """Drop what is about a caller. The latest findings don't say whose they are, so all go."""
        self.latest = []
        self.doubts = {name: why for name, why in self.doubts.items() if not name.startswith(f"{caller}/")}


def load(path: Path) -> SignalState:
    """Read the file; a broken one is as none."""
    try:
        return SignalState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return SignalState()
    except (OSError, ValidationError) as error:
        logger.warning("signals: %s can't be read, so they are read from now on only: %s", path, error)
        return SignalState()


def save(path: Path, state: SignalState) -> None:
    """Raises OSError."""
    durable.replace(path, state.model_dump_json())
