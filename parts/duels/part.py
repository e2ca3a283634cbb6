"""Duels as a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from starlette.routing import BaseRoute

from burnish.parts.core import Core
from burnish.parts.duels.contest import Contest
from burnish.parts.duels.duels import Duels
from burnish.parts.duels.routes import duel_routes
from burnish.parts.hooks import Part


class BlindDuels(Part):
    name: ClassVar[str] = "duels"
    foreign: ClassVar[bool] = False

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        engine = core.engine
        contest = Contest(core.log, engine.swap, core.upstream.name, core.relay) if engine else None
        return duel_routes(Duels(core.log, contest, core.why_not, core.rules, core.on_feedback))
