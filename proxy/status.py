"""``/healthz`` and ``/burnish/status``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import burnish
from burnish.adapters.errors import AdapterError
from burnish.adapters.hosts.managed import ManagedEngine
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.swap import Swap
from burnish.proxy.config import Config
from burnish.proxy.json_http import caller_of, json_response
from burnish.proxy.log import Log
from burnish.proxy.relay.upstreams import Upstreams

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


NO_ENGINE: dict[str, Any] = {"version": None, "name": None, "served_by": [], "resident": []}


def status_routes(
    log: Log,
    upstreams: Upstreams,
    engine: Engine | None,
    learner_status: Callable[[], dict[str, Any]],
    instructions_status: Callable[[str], Awaitable[dict[str, Any]]],
    *,
    config: Config,
    started: ManagedEngine | None,
) -> Sequence[Route]:
    """``engine`` is None if burnish doesn't swap versions in the upstream, ``started`` if it didn't start the upstream.

    ``instructions_status`` takes a caller; see ``Instructions.status``.
    """

    def engine_trouble() -> str | None:
        return (started and started.trouble) or (engine and engine.trouble()) or None

    async def healthz(request: Request) -> Response:
        trouble = [reason for reason in (log.healthy(), engine_trouble()) if reason]
        up = engine.serving if engine else not (started and started.trouble)
        content = {"status": "ok" if up and not trouble else "degraded", "trouble": trouble}
        return json_response(content | {"version": burnish.__version__}, 200 if up else 503)

    async def configuration(request: Request) -> Response:
        return json_response(config.model_dump(mode="json"))  # keys are masked

    async def status(request: Request) -> Response:
        return json_response(
            {
                "version": burnish.__version__,
                "upstream": upstreams.name,
                "upstream_api_key": config.upstream_api_key is not None,
                "upstreams": await upstreams.status(),
                "live": engine.live() if engine else NO_ENGINE,
                "engine": {
                    "trouble": engine_trouble(),
                    "started": started.status() if started else None,
                    "obstacle": await engine.obstacle() if engine else learner_status()["reason"],
                    "way": engine.swap.host.limits.way if engine else None,
                    "window": engine.window if engine else None,
                },
                "log": {"healthy": log.healthy() is None, "trouble": log.healthy()},
                "counts": await log.counts(),
                "learner": learner_status(),
                "instructions": await instructions_status(caller_of(request)),
            }
        )

    return [
        Route("/healthz", healthz),
        Route("/burnish/status", status),
        Route("/burnish/config", configuration),
    ]


def summary(
    counts: dict[str, int], live: dict[str, Any] | None, learner: dict[str, Any], instructions: dict[str, Any]
) -> str:
    """Return one line for ``/rl status``."""
    added = (
        f"; {instructions['count']} of your instructions are in the system prompt"
        if instructions["on"]
        else ""
    )
    rated = f"{counts['ratings']} answers rated ({counts['good']} good, {counts['bad']} bad)"
    served = f"; live version: {live['name']}" if live else ""
    if waits := learner.get("waiting"):
        served += f"; v{waits['version']} waits for /rl promote ({waits['reason'].removesuffix('.')})"
    return f"{rated}{served}; training: {learner['state']} – {learner['reason']}{added}"
