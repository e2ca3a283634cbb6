"""Rollouts as a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from starlette.routing import BaseRoute

from burnish.parts.core import Core
from burnish.parts.hooks import Part
from burnish.parts.rollouts.rollouts import Rollouts
from burnish.parts.rollouts.routes import rollout_routes
from burnish.parts.rollouts.version_leases import Pins
from burnish.proxy.log import Log


class AgentRollouts(Part):
    name: ClassVar[str] = "rollouts"
    foreign: ClassVar[bool] = False

    def __init__(self, log: Log, secret: bytes) -> None:
        """``secret``: that of the data directory."""
        self._rollouts = Rollouts(log, secret)
        self.carried = self._rollouts.carried
        """Returns an open rollout that a request names."""

    async def stop(self) -> None:
        await self._rollouts.close()

    async def use(self, core: Core) -> None:
        pins = Pins(core.engine.swap) if core.engine else None
        await self._rollouts.use(pins, core.why_not)

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        return rollout_routes(self._rollouts)

    async def erased(self, user: str) -> None:
        self._rollouts.forgotten(user)
