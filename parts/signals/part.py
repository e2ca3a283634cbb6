"""Environment signals as a part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.config.config import Config
from burnish.parts.core import Core
from burnish.parts.hooks import Part
from burnish.parts.signals.following import Signals
from burnish.proxy.log import Log
from burnish.proxy.log.batch import Stored


class ToolSignals(Part):
    name = "signals"
    foreign = False

    def __init__(self, log: Log, config: Config) -> None:
        self._signals = Signals(log, config.data_dir, enabled=config.signals.enabled)

    async def start(self) -> None:
        await self._signals.start()

    async def stop(self) -> None:
        await self._signals.stop()

    async def use(self, core: Core) -> None:
        self._signals.on_feedback = core.on_feedback

    def status(self) -> Mapping[str, Any]:
        return self._signals.status()

    def stored(self, entry: Stored) -> None:
        self._signals.stored()

    async def erased(self, user: str) -> None:
        await self._signals.forget(user)
