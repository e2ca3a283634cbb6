"""A figure of the page, with its limit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """Values of one run. Their median counts."""

    name: str
    values: Sequence[float]
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def holds(self) -> bool:
        above = self.at_most is not None and self.median > self.at_most
        below = self.at_least is not None and self.median < self.at_least
        return not above and not below

    def __str__(self) -> str:
        limit = f"at most {self.at_most:g}" if self.at_most is not None else ""
        limit = f"at least {self.at_least:g}" if self.at_least is not None else limit
        spread = f"{min(self.values):.3g} to {max(self.values):.3g}" if len(self.values) > 1 else ""
        notes = "; ".join(each for each in (spread, limit) if each)
        return f"{self.name}: {self.median:.3g} {self.unit}" + (f" ({notes})" if notes else "")
