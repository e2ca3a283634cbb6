"""What parts see of the core: settings, the log, the engine, and who asks the model for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from burnish.config.config import Config
from burnish.learner.learning import Engine, Learning
from burnish.learner.version_details import fates_in
from burnish.proxy.access.guard import Guard
from burnish.proxy.feedback.shapes import Fates
from burnish.proxy.feedback.usability import rules_of
from burnish.proxy.instructions import Instructions
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.records import Feedback
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.upstreams import Upstreams


@dataclass(slots=True, kw_only=True)
class Core:
    """The core while its engine stays the same. When an engine that was down is found, parts get another one."""

    config: Config
    guard: Guard
    log: Log
    learning: Learning | None
    """None if burnish doesn't swap versions in the upstream."""
    why_not: str
    """Why it doesn't; "" if it does."""
    upstream: Upstreams
    instructions: Instructions
    status: Callable[[str], Awaitable[dict[str, Any]]]
    """Takes a caller; returns what ``/burnish/status`` shows."""
    on_feedback: Callable[[Feedback], None]
    """To be called with feedback that was stored or undone."""
    on_imported: Callable[[], None]
    """To be called when records of another log, or of another program, were stored."""
    relay: Relay = field(init=False)
    """Set before routes are asked for."""

    @property
    def engine(self) -> Engine | None:
        return self.learning.engine if self.learning else None

    def live(self) -> int | None:
        """Return the number of the live version; None if burnish doesn't swap versions."""
        return self.engine.live()["version"] if self.engine else None

    @property
    def rules(self) -> Rules:
        return rules_of(self.config)

    async def fates(self) -> Fates:
        """Return what the runs so far did with feedback."""
        versions = await asyncio.to_thread(self.learning.registry.versions) if self.learning else []
        return fates_in(versions)

    def learner_status(self) -> dict[str, Any]:
        return self.learning.learner.status() if self.learning else {"state": "off", "reason": self.why_not}
