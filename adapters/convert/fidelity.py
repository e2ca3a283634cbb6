"""Does a merged model keep what the adapter learnt? Rounding may give the base model again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from burnish.adapters.convert.peft import Array
from burnish.adapters.errors import IncompatibleAdapter, LostInRounding

MIN_KEPT = 0.9
"""Of the change. Measured: q8_0 keeps 1.00 on a 4-bit base, 4 bits .06."""
MAX_NOISE = 10.0
"""Of the rounding, in units of the change. An ordinary adapter has 3.5 to 5 with q8_0. Up to 10 no effect on next-token
probabilities was measured, and beyond it f16 keeps no more, either (docs/measurements.md)."""


@dataclass(slots=True)
class Fidelity:
    """Compares what was stored with what was meant, over all changed tensors of a merge."""

    delta_square: float = 0.0
    """<δ, δ>"""
    overlap: float = 0.0
    """<Ŵ−W, δ>"""
    missed: float = 0.0
    """|Ŵ−W−δ|²"""

    def add(self, change: Array, delta: Array) -> None:
        """Count rows: Ŵ−W, and δ."""
        missed = (change - delta).ravel()
        self.delta_square += float(delta.ravel() @ delta.ravel())
        self.overlap += float(change.ravel() @ delta.ravel())
        self.missed += float(missed @ missed)

    @property
    def kept(self) -> float:
        return self.overlap / self.delta_square if self.delta_square else 1.0

    @property
    def noise(self) -> float:
        return math.sqrt(self.missed / self.delta_square) if self.delta_square else 0.0

    def check(self, precision: str) -> None:
        """Raise LostInRounding, or IncompatibleAdapter if there is no change at all."""
        if not self.delta_square:
            raise IncompatibleAdapter("the adapter changes no weight; serve the base model instead")
        # Not "kept < MIN_KEPT": NaN must fail, too.
        if not (self.kept >= MIN_KEPT and self.noise <= MAX_NOISE):
            raise LostInRounding(
                f"rounded to {precision}, the merged weights keep {self.kept:.0%} of the adapter with {self.noise:.1f} "
                f"times its size in rounding errors; at least {MIN_KEPT:.0%} and at most {MAX_NOISE:g} times are "
                "needed, or replies would be those of the base model"
            )
