"""An engine that takes versions: which one is live, and what it lacks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

from burnish.adapters.errors import AdapterError
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.swap import Swap

# An engine may be started again in another way, but nobody should wait for it, or load it, at each look.
CHECK_AGAIN_S = 30.0
CHECK_LIMIT_S = 3.0


@dataclass(slots=True)
class Engine:
    """The state of an engine that takes versions."""

    swap: Swap
    reconciler: Reconciler
    _obstacle: str | None = None
    _check_at: float = 0.0
    """When the engine is asked again, on the monotonic clock."""

    def live(self) -> dict[str, Any]:
        """Return the live version according to the route."""
        endpoint = self.swap.route.live
        return {
            "version": endpoint.version if endpoint else self.swap.registry.live(),
            "name": endpoint.model if endpoint else None,
            "served_by": list(endpoint.urls) if endpoint else [],
            "resident": sorted(self.swap.route.resident()),
        }

    def trouble(self) -> str | None:
        """Return why the engine doesn't serve the right versions; None if it does."""
        return self.reconciler.last.fault or self.reconciler.degraded

    async def obstacle(self) -> str | None:
        """Return what the engine still needs so that versions can be swapped in it; None if it needs nothing."""
        if time.monotonic() >= self._check_at:
            try:
                async with asyncio.timeout(CHECK_LIMIT_S):
                    await self.swap.host.check()
                self._obstacle = None
            except TimeoutError:
                pass  # it is busy, so what was known stays
            except AdapterError as error:
                self._obstacle = str(error)
            self._check_at = time.monotonic() + CHECK_AGAIN_S
        return self._obstacle

    @property
    def window(self) -> dict[str, Any] | None:
        """Return what the engine reads; None if its user sets that."""
        window = self.swap.host.limits.window
        return asdict(window) if window else None

    @property
    def serving(self) -> bool:
        return self.swap.route.live is not None
