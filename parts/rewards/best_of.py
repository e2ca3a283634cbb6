"""The best of N: several answers to one request, of which the reward model chooses the one that is sent.

Each answer is asked for like any other, at the same time. Its bytes wait here, and those of the best one go out as they
came: streamed if a stream was asked for, calls of tools included. So no format needs a word about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.types import Message, Scope, Send

from burnish.parts.rewards.replies import ScorableReply, Score, Scored, scorable_reply
from burnish.proxy.client_headers import BEST_OF, COMPLETION_ID, REWARD
from burnish.proxy.http.errors import BurnishError, Conflict, InvalidRequest
from burnish.proxy.http.headers import Named, first
from burnish.proxy.http.listener import ON_LEAVE, TRAIL
from burnish.proxy.http.origin import UpstreamCut
from burnish.proxy.ids import completion_id
from burnish.proxy.records import Completion
from burnish.proxy.relay.client import Client
from burnish.proxy.relay.flight import CAPTURE_LIMIT_BYTES, Flight
from burnish.proxy.relay.steps import Exchange, Sending, Step
from burnish.proxy.surfaces import SURFACES
from burnish.system.apart import LARGE_BYTES

MEMBER = "burnish_best_of"
"""Of a body; burnish takes it out."""
SCORED_CHARACTERS = 20_000
"""Of each answer, from its beginning."""


class BestOf(Step):
    asked_for: ClassVar[bool] = True

    def __init__(self, score: Score, most: int) -> None:
        """``most``: answers to one request."""
        self._score = score
        self._most = most

    def concerns(self, exchange: Exchange) -> bool:
        return BEST_OF in exchange.headers or MEMBER in exchange.members

    async def before_target(self, exchange: Exchange) -> None:
        count = wanted(exchange.headers, exchange.members, self._most)
        if MEMBER in exchange.kept:
            exchange.kept = {name: member for name, member in exchange.kept.items() if name != MEMBER}
        if count == 1:
            return
        if exchange.large:
            raise InvalidRequest(
                f"the best of several answers is for requests up to {LARGE_BYTES} bytes: ask for one answer, or send "
                "less"
            )
        await self._score((), ())  # before anything is asked for in vain
        exchange.deliver = partial(self._deliver, count)

    async def _deliver(self, count: int, relay: Sending, flight: Flight, scope: Scope, send: Send) -> None:
        """Get all answers, and send the best one. All of them are logged."""
        copies = (replace(flight, id=completion_id(), chunks=[]) for _ in range(count - 1))
        tries = [Try(copy, CAPTURE_LIMIT_BYTES // count) for copy in (flight, *copies)]
        relay.flights |= {attempt.flight.id: attempt.flight for attempt in tries}
        best, scored = tries[0], None
        try:
            async with Client(scope) as client:
                await asyncio.gather(*(_ask(relay, attempt, waiting(scope)) for attempt in tries))
                best, scored = await chosen(tries, flight.messages, self._score)
                client.begun = True
                await replay(best, count, send)
        except BurnishError as error:
            error.headers.append((COMPLETION_ID, best.flight.id.encode()))
            raise
        finally:
            # First the one whose conversation the others join.
            for attempt in sorted(tries, key=lambda attempt: attempt is not best):
                del relay.flights[attempt.flight.id]
                if attempt.flight.outcome == "cancelled":
                    attempt.flight.fail("cancelled", "the client went away")
                relay.store(finished(attempt, best, scored))


async def _ask(relay: Sending, attempt: Try, scope: Scope) -> None:
    async with Client(scope) as client:
        try:
            await relay.ask(attempt.flight, scope, attempt.take, client)
        except BurnishError as error:
            attempt.error = error


def wanted(headers: Named, body: Mapping[str, Any], most: int) -> int:
    """Return how many answers a request asks for, up to ``most``. Raises InvalidRequest."""
    header = first(headers, BEST_OF)
    settings = {BEST_OF.decode(): header} if header is not None else {}
    settings |= {MEMBER: body[MEMBER]} if MEMBER in body else {}
    counts = {name: _count(name, setting, most) for name, setting in settings.items()}
    if len(set(counts.values())) > 1:
        both = " and ".join(f"{name} {count}" for name, count in counts.items())
        raise InvalidRequest(f"{both} contradict each other: send one of them", param=MEMBER)
    count = next(iter(counts.values()), 1)
    if count > 1 and body.get("n") not in (None, 1):
        raise InvalidRequest(
            f"n and the best of {count} answers can't be combined: leave n out, or ask for one answer",
            param="n",
        )
    return count


def _count(name: str, setting: object, most: int) -> int:
    text = str(setting).strip() if isinstance(setting, str | int) and not isinstance(setting, bool) else ""
    if text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and 1 <= int(text) <= most:
        return int(text)
    raise InvalidRequest(
        f"{name} must be a number from 1 to {most} (reward.best_of_max), not {str(setting)[:20]!r}",
        param=name,
    )


@dataclass(eq=False)
class Try:
    """One of the answers, which waits to be chosen."""

    flight: Flight
    most_bytes: int
    """Its share of what all of them may take."""
    error: BurnishError | None = None
    """Why there is no answer."""
    reward: float | None = None
    messages: list[Message] = field(default_factory=list)
    _size: int = 0

    async def take(self, message: Message) -> None:
        """Keep what is to be sent. Raises UpstreamCut if it becomes too long to wait here."""
        self._size += len(message.get("body", b""))
        if self._size > self.most_bytes:
            self.error = UpstreamCut(
                f"the answer has more than {self.most_bytes} bytes, too many for the best of several: ask for fewer"
            )
            raise self.error
        self.messages.append(message)

    def written(self) -> ScorableReply | None:
        """Return the reply to be scored; None if there is no whole one."""
        flight = self.flight
        if self.error or flight.outcome != "complete" or flight.status != HTTPStatus.OK:
            return None
        surface = SURFACES[flight.asked.surface]
        answer = surface.reassemble(flight.chunks, flight.content_type, flight.content_encoding)
        if not (answer.message and answer.complete):
            return None
        reply = scorable_reply(answer.message, answer.finish_reason)
        return reply._replace(text=reply.text[:SCORED_CHARACTERS])


def waiting(scope: Scope) -> Scope:
    """Return the scope of an answer that waits: nobody reads it yet, and nobody leaves."""
    return {**scope, "extensions": {ON_LEAVE: lambda leave: None, TRAIL: lambda trailers: None}}


async def chosen(
    tries: Sequence[Try], messages: Sequence[dict[str, Any]], score: Score
) -> tuple[Try, Scored | None]:
    """Score the answers and return the best one; if none is whole, the first one that says anything.

    Raises the first error if nothing was answered, and Conflict if there is nothing to choose by.
    """
    # One after the other, so that no more is read once the client has left.
    replies = [await asyncio.to_thread(attempt.written) for attempt in tries]
    whole = [(attempt, reply) for attempt, reply in zip(tries, replies, strict=True) if reply]
    if not whole:
        if fallback := next(
            (attempt for attempt in tries if attempt.messages and attempt.error is None), None
        ):
            return fallback, None
        raise next(filter(None, (attempt.error for attempt in tries)), BurnishError("no answer came"))
    scored = await score(messages, [reply for _, reply in whole])
    for (attempt, _), reward in zip(whole, scored.rewards, strict=True):
        attempt.reward = reward
    able = [(attempt.reward, attempt) for attempt, _ in whole if attempt.reward is not None]
    if not able:
        raise Conflict(
            f"the reward model {scored.model} gives no number for any of {len(whole)} answers, so none can be chosen: "
            "run `burnish reward train`, or ask without the best of several",
            code="reward_model_broken",
        )
    return max(able, key=lambda pair: pair[0])[1], scored


async def replay(best: Try, count: int, send: Send) -> None:
    extra_headers = [(BEST_OF, str(count).encode())]
    if best.reward is not None:
        extra_headers.append((REWARD, f"{best.reward:.4f}".encode()))
    start, *body = best.messages
    await send({**start, "headers": [*start["headers"], *extra_headers]})
    for message in body:
        await send(message)


def finished(attempt: Try, best: Try, scored: Scored | None) -> Completion:
    completion = attempt.flight.finish()
    end = completion.ended
    if scored and attempt.reward is not None:
        end = end._replace(reward=attempt.reward, rewarded_by=scored.model)
    return completion._replace(asked=completion.asked._replace(best_of=best.flight.id), ended=end)
