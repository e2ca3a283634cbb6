"""AI feedback: a model judges answers by written principles (Bai et al. 2022, arXiv:2212.08073)."""

from __future__ import annotations

from burnish.parts.judging.judging import Judging
from burnish.parts.judging.routes import judging_routes

__all__ = ["Judging", "judging_routes"]
