"""What parts of burnish may do with a request for a completion, and what they see of it.

A step acts at up to three points: before the upstream is chosen, when it is chosen, and right before the request is
sent. The steps of a relay stand in a list, and act in its order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from starlette.types import Scope, Send

from burnish.proxy.http.errors import BurnishError, Unavailable
from burnish.proxy.http.headers import Named
from burnish.proxy.records import Completion
from burnish.proxy.relay.client import Client
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.outbound import Sender, Spans
from burnish.proxy.relay.routing import Target
from burnish.proxy.surfaces import ChatRequest, Surface
from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.writing import LocalAnswer

logger = logging.getLogger(__name__)


class Sending(Protocol):
    """The relay, as a step sees it that sends a request itself."""

    flights: dict[str, Flight]

    async def ask(self, flight: Flight, scope: Scope, send: Send, client: Client) -> None:
        """Send a request and pass its answer on. Raises BurnishError."""

    def store(self, completion: Completion) -> None:
        """Take the record of a completion that has ended."""


Deliver = Callable[[Sending, Flight, Scope, Send], Awaitable[None]]
"""Answers a request in another way than by passing on the one answer to it. Raises BurnishError."""


@dataclass(slots=True)
class Exchange:
    """A request before an upstream is chosen. A step may change ``kept``, ``request`` and ``cut``."""

    surface: Surface
    scope: Scope
    headers: Named
    body: bytes
    """Decompressed."""
    members: Json
    """The members of the body, without the conversation if the request is large."""
    kept: Json
    """What goes on of the members; the same object if it is all of them."""
    request: ChatRequest
    large: bool = False
    cut: set[int] = field(default_factory=set)
    """Messages that don't go on, by index."""
    answer: LocalAnswer | None = None
    """burnish's own answer; then nothing is sent."""
    deliver: Deliver | None = None


@dataclass(slots=True)
class Outgoing:
    """A request to a target. A step may change its body, or what sends it."""

    flight: Flight
    scope: Scope
    target: Target
    body: bytes
    named_at: Spans | None
    """Where the body names the model, if that is known."""
    sender: Sender | None = None
    """None: the relay sends it as it is."""


class Step:
    """Does nothing, at no cost, at the points that a subclass leaves out."""

    asked_for: ClassVar[bool] = False
    """Whether requests ask for it. Then its failure is their failure. Other steps are skipped if they fail."""
    limit_s: ClassVar[float] = 15.0
    """How long it may take. An agent waits for it."""

    def concerns(self, exchange: Exchange) -> bool:
        """Tell, cheaply and for each request, whether the step has something to do before the upstream is chosen."""
        return True

    async def before_target(self, exchange: Exchange) -> None:
        """Act before the upstream is chosen: answer, or change what goes on."""

    def concerns_target(self, flight: Flight, scope: Scope) -> bool:
        """Tell whether the step has something to do when the upstream is chosen."""
        return True

    async def with_target(self, outgoing: Outgoing) -> None:
        """Act when the upstream is chosen. If that refuses the changed body, the step isn't asked again."""

    async def before_send(self, outgoing: Outgoing) -> None:
        """Act right before the request is sent: choose what sends it."""


async def act(step: Step, action: Awaitable[None]) -> None:
    """Run a step at one point, within its time. Raises BurnishError if the request asked for it."""
    name = type(step).__name__
    try:
        async with asyncio.timeout(step.limit_s):
            await action
    except BurnishError as error:
        if step.asked_for:
            raise
        logger.warning("%s was skipped for a request: %s", name, error.message)
    except TimeoutError as error:
        late = f"{name} took longer than {step.limit_s:g} s"
        if step.asked_for:
            raise Unavailable(f"{late}: try again in a moment") from error
        logger.warning("%s was skipped for a request: %s", name, late)
    except Exception as error:
        if step.asked_for:
            raise
        logger.exception("%s was skipped for a request: %s", name, error)


def acting(steps: Sequence[Step], point: str) -> list[Step]:
    """Return the steps that do something at a point."""
    return [step for step in steps if getattr(type(step), point) is not getattr(Step, point)]
