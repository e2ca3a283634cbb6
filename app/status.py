"""``/healthz`` and ``/burnish/status``."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import burnish
from burnish.adapters.hosts.managed import ManagedEngine
from burnish.config.config import Config
from burnish.parts.core import Core
from burnish.parts.hooks import Hooks
from burnish.proxy.described import described, flat
from burnish.proxy.json_http import caller_of, json_response

# Open pages hear of every change of the status, and the free room changes all the time.
ROUGH_BYTES = 100_000_000


NO_ENGINE: dict[str, Any] = {
    **{"version": None, "name": None, "proof": None},
    **{"served_by": [], "resident": []},
}


@dataclass(frozen=True, slots=True)
class Status:
    """What ``/burnish/status`` shows."""

    core: Core
    in_flight: Callable[[], int]
    started: ManagedEngine | None
    """None if burnish didn't start the upstream."""
    hooks: Hooks

    def engine_trouble(self) -> str | None:
        engine = self.core.engine
        return (self.started and self.started.trouble) or (engine and engine.trouble()) or None

    async def shown(self, caller: str) -> dict[str, Any]:
        core, log = self.core, self.core.log
        engine, upstreams = core.engine, await core.upstream.status()
        obstacle = await engine.obstacle() if engine else None
        room = await asyncio.to_thread(_room, core.config)
        counts, rollouts = await log.counts(), (await log.rollout_tally())._asdict()
        instructions = await core.instructions.status(caller, core.live())
        # After all that waits: a page that has paused training must not be told then that it wasn't.
        trouble, learner = log.healthy(), core.learner_status()
        return {
            "version": burnish.__version__,
            "upstream": core.upstream.name,
            "upstream_api_key": core.config.upstream_api_key is not None,
            "upstreams": upstreams,
            "live": engine.live() if engine else NO_ENGINE,
            "engine": {
                "trouble": self.engine_trouble(),
                "started": self.started.status() if self.started else None,
                "obstacle": obstacle if engine else learner["reason"],
                "way": engine.swap.host.limits.way if engine else None,
                "window": engine.window if engine else None,
                "longest_answer": engine.swap.host.limits.longest_answer if engine else None,
            },
            "answering": self.in_flight(),
            "log": {
                "healthy": trouble is None,
                "trouble": trouble,
                "waiting": log.backlog().entries,
                **room,
            },
            "counts": counts,
            "learner": learner,
            "instructions": instructions,
            **self.hooks.shown(),
            "parts": self.hooks.status(),
            "rollouts": rollouts,
        }


def status_routes(status: Status) -> Sequence[Route]:
    @described(
        "process, engine, live version and log",
        flat("Health", status=Literal["ok", "degraded"], trouble=list[str], version=str),
        statuses=(200, 503),
    )
    async def healthz(request: Request) -> Response:
        trouble = [reason for reason in (status.core.log.healthy(), status.engine_trouble()) if reason]
        engine, started = status.core.engine, status.started
        up = engine.serving if engine else not (started and started.trouble)
        content = {"status": "ok" if up and not trouble else "degraded", "trouble": trouble}
        return json_response(content | {"version": burnish.__version__}, 200 if up else 503)

    @described("the configuration in use, without keys")
    async def configuration(request: Request) -> Response:
        return json_response(status.core.config.model_dump(mode="json"))  # keys are masked

    @described(
        "counts, [further upstreams](engines.md#several-upstreams) and what is wrong with them, live version, what the "
        "engine still needs (`engine.obstacle`), what the embedded one reads (`engine.window`), "
        "how many tokens burnish's chats ask a small model for (`engine.longest_answer`), state of training and why it "
        "waits, answers that are being written (`answering`), of the log `waiting`, `size_bytes`, `free_bytes`, "
        "the latest [signals](signals.md), `rollouts` that are open, or ready to be learnt from by task, and `parts`: "
        "one that is `behind` has not taken so many events, for the reason in `trouble`, and gets them again"
    )
    async def shown(request: Request) -> Response:
        return json_response(await status.shown(caller_of(request)))

    paths = {"/healthz": healthz, "/burnish/status": shown, "/burnish/config": configuration}
    return [Route(path, endpoint) for path, endpoint in paths.items()]


def _room(config: Config) -> dict[str, int]:
    log = config.log_file
    files = (log, *log.parent.glob(f"{log.name}-*"))
    return {
        "size_bytes": sum(each.stat().st_size for each in files if each.is_file()),
        "free_bytes": shutil.disk_usage(log.parent).free // ROUGH_BYTES * ROUGH_BYTES,
    }
