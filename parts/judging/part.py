"""AI feedback as a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from starlette.routing import BaseRoute

from burnish.config.model_names import DEFAULT_MODEL
from burnish.parts.core import Core
from burnish.parts.hooks import Part
from burnish.parts.judging.judging import Judging
from burnish.parts.judging.routes import judging_routes


class AiFeedback(Part):
    name: ClassVar[str] = "judging"
    foreign: ClassVar[bool] = False

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        # Not the live version: it learns from the judge.
        base = f"{core.learning.base[0]}@base" if core.learning else DEFAULT_MODEL
        judging = Judging(
            core.log,
            core.relay,
            core.config,
            core.rules,
            base_model=base,
            upstream=core.upstream.name,
            on_feedback=core.on_feedback,
        )
        return judging_routes(judging, core.log, core.config.data_dir)
