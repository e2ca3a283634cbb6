"""Asks engines for token ids with a completion, and gives the client the answer that it asked for.

Such a request goes out as chat and with further members, so it isn't the client's to the byte. A stream is passed on
event by event if the engine puts its tokens into streams, as vLLM does. Others are asked for the whole answer, which
the client then gets as a stream.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import ClassVar, NamedTuple

import orjson
from starlette.types import Scope

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.detect import NAMES, Kind, detect
from burnish.proxy.http.connection import Body, Sink
from burnish.proxy.http.errors import BurnishError
from burnish.proxy.http.headers import encoding_of, value_of
from burnish.proxy.http.origin import UpstreamResponse
from burnish.proxy.relay.answers import JSON_TYPE, ChangedAnswer, WholeAnswer, read_apart
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.given_tokens import WAYS, Collected, Way, as_events, count_of
from burnish.proxy.relay.outbound import Outbound, append_members, readable
from burnish.proxy.relay.routing import Target
from burnish.proxy.relay.steps import Outgoing, Step
from burnish.proxy.surfaces import SURFACES, Translatable
from burnish.proxy.surfaces.lenient import Json, decode, error_in, object_in
from burnish.proxy.surfaces.sse import DONE
from burnish.proxy.surfaces.writing import EVENTS
from burnish.system.apart import WorkerProcess

CHAT = "chat"
REMEMBERED_S = 600.0
"""Which engine answers at a URL; it may be replaced by another one."""
FAULT_REMEMBERED_S = 10.0
"""That it couldn't be told: an engine that is starting is known soon."""
MOST_REMEMBERED = 1000
EVENT_END = re.compile(rb"\r?\n\r?\n")
DATA = b"data:"


class _EngineFinding(NamedTuple):
    kind: Kind | None
    """None: it can't be told."""
    why: str
    """Why it gives no tokens, if it gives none."""
    until: float


class Capturing(Step):
    """Has the tokens of an answer captured, which the settings ask for, or the request's rollout."""

    asked_for: ClassVar[bool] = True
    limit_s: ClassVar[float] = 600.0  # finding out what an engine is has limits of its own

    def __init__(self, outbound: Outbound, apart: WorkerProcess) -> None:
        self._outbound = outbound
        self._apart = apart
        self._found: dict[str, _EngineFinding] = {}
        """By the target's URL."""

    def concerns_target(self, flight: Flight, scope: Scope) -> bool:
        return flight.captures_tokens

    async def before_send(self, outgoing: Outgoing) -> None:
        """Choose what sends a flight's request so that its tokens are captured, if there are any to get."""
        flight = outgoing.flight
        flight.collected = Collected()
        surface = flight.asked.surface
        params = flight.params if surface == CHAT else {}
        if surface != CHAT and not isinstance(SURFACES[surface], Translatable):
            flight.collected.lacks(f"the format {surface} can't be translated into chat")
        elif flight.params.get("n") not in (None, 1):
            flight.collected.lacks("several answers were asked for at once (n)")
        else:
            engine = await self._engine(outgoing.target, outgoing.scope)
            if engine.kind and (way := WAYS.get(engine.kind)):
                outgoing.sender = _Capture(self._outbound, self._apart, flight, way(params))
            else:
                flight.collected.lacks(engine.why)

    async def _engine(self, target: Target, scope: Scope) -> _EngineFinding:
        if target.embedded:
            return _EngineFinding("llamacpp", "", 0.0)
        found = self._found.get(target.url)
        if found is None or found.until < time.monotonic():
            if len(self._found) >= MOST_REMEMBERED:
                self._found.clear()
            found = self._found[target.url] = await self._look(target, scope)
        return found

    async def _look(self, target: Target, scope: Scope) -> _EngineFinding:
        api = EngineApi(target.url, self._outbound.key_for(scope, target))
        try:
            kind = (await detect(api)).kind
            why = f"{NAMES.get(kind, 'this upstream')} gives no token ids; llama.cpp, vLLM and MLX do"
            return _EngineFinding(kind, why, time.monotonic() + REMEMBERED_S)
        # Whatever answers at that URL: it may list anything.
        except (EngineError, LookupError, TypeError, AttributeError, ValueError) as error:
            why = f"burnish can't tell which engine this is: {error}"
            return _EngineFinding(None, why, time.monotonic() + FAULT_REMEMBERED_S)
        finally:
            await api.close()


@dataclass(frozen=True, slots=True)
class _Capture:
    """Sends the request of one flight."""

    outbound: Outbound
    apart: WorkerProcess
    flight: Flight
    way: Way

    async def send(self, scope: Scope, target: Target, body: Body, raw_path: bytes) -> UpstreamResponse:
        """Send a request of chat. Raises what the pool raises."""
        assert isinstance(body, bytes)
        self.flight.collected = collected = Collected()
        scope = readable(scope)
        asked = append_members(body, tuple(self.way.members().items()))
        response = await self.outbound.send(scope, target, asked, raw_path)
        with ExitStack() as answered:
            answered.enter_context(response)
            encoding = encoding_of(response.headers)
            if response.status != HTTPStatus.OK:
                collected.lacks(f"the engine answered {response.status}")
            elif b"event-stream" not in value_of(response.headers, b"content-type"):
                response = await self._whole(response, encoding, scope, target, asked)
            elif encoding:
                collected.lacks(f"the engine compressed its stream ({encoding}), which it wasn't asked for")
            else:
                response = _Events(response, self.way, collected)
            answered.pop_all()
        return response

    async def _whole(
        self, response: UpstreamResponse, encoding: str, scope: Scope, target: Target, asked: bytes
    ) -> UpstreamResponse:
        content = await response.whole()
        read = partial(_read, content, encoding, self.way)
        answer = await read_apart(self.apart, content, encoding, read)
        self.flight.collected = collected = answer.collected
        if self.way.renders and collected.missing is None:
            await self._render(collected, scope, target, asked, count=answer.prompt_tokens)
        return WholeAnswer(response, HTTPStatus.OK, answer.content, answer.content_type)

    async def _render(
        self, collected: Collected, scope: Scope, target: Target, asked: bytes, *, count: int | None
    ) -> None:
        """Ask llama.cpp for the ids of the prompt, of which it read ``count``: it renders and cuts it as before."""
        scope = {**scope, "query_string": b""}
        try:
            prompt = (await self._ask(scope, target, b"/apply-template", asked)).get("prompt")
            text = {"content": prompt, "add_special": True, "parse_special": True}
            model = target.model or self.flight.model
            text |= {"model": model} if model else {}
            ids = (await self._ask(scope, target, b"/tokenize", orjson.dumps(text))).get("tokens")
        except (BurnishError, ValueError) as error:
            return collected.lacks(f"llama.cpp doesn't tell the ids of the prompt: {error}")
        if not isinstance(ids, list) or len(ids) != count:
            told = len(ids) if isinstance(ids, list) else "no"
            return collected.lacks(
                f"llama.cpp read {count} tokens and tells {told} ids of the prompt (an image?)"
            )
        collected.prompt = ids

    async def _ask(self, scope: Scope, target: Target, path: bytes, body: bytes) -> Json:
        """Raises what the pool raises, and ValueError."""
        with await self.outbound.send(scope, target, body, path) as response:
            content = await response.whole()
            if response.status != HTTPStatus.OK:
                raise ValueError(f"{path.decode()} answered {response.status}")
        return object_in(content) or {}


class _Events(ChangedAnswer):
    """A stream of chat without what only the capture asked for; each event goes on as soon as it is complete."""

    def __init__(self, response: UpstreamResponse, way: Way, collected: Collected) -> None:
        super().__init__(response, EVENTS)
        self._way = way
        self._collected = collected
        self._rest = b""

    async def read(self, sink: Sink | None = None) -> bytes:
        while True:
            data = await self._response.read()
            over = not data or self._response.finished
            shown = b"".join(self._next(data, last=over))
            if shown or over:
                return shown

    def _next(self, data: bytes, *, last: bool) -> Iterator[bytes]:
        data = self._rest + data
        start = 0
        for end in EVENT_END.finditer(data, max(0, len(self._rest) - 3)):
            yield self._shown(data[start : end.end()])
            start = end.end()
        self._rest = data[start:]
        if last and self._rest:
            rest, self._rest = self._rest, b""
            yield self._shown(rest)

    def _shown(self, event: bytes) -> bytes:
        """Return an event for the client, b"" if it gets none."""
        data = event.strip().removeprefix(DATA).strip()
        if not event.startswith(DATA) or not (chunk := object_in(data)):
            return event
        self._way.take(chunk, self._collected)
        return b"" if self._way.adds(chunk) else b"data: %b\n\n" % _json(chunk)


class _AnswerRead(NamedTuple):
    """What was read of a whole answer."""

    content: bytes
    """For the client."""
    content_type: str
    collected: Collected
    prompt_tokens: int | None


def _read(content: bytes, encoding: str, way: Way) -> _AnswerRead:
    """Raises Undecodable."""
    content = decode(content, encoding)
    collected = Collected()
    answer = object_in(content)
    if answer is None:
        collected.lacks("the engine's answer isn't an answer of chat")
        return _AnswerRead(content, JSON_TYPE, collected, None)
    way.take(answer, collected)
    if error := error_in(answer):
        collected.lacks(f"the engine answered with an error: {error}")
    count = count_of(answer, "prompt_tokens")
    if not way.streams:
        return _AnswerRead(_json(answer), JSON_TYPE, collected, count)
    events = [b"data: %b\n\n" % _json(each) for each in as_events(answer, usage=way.counts)]
    return _AnswerRead(b"".join([*events, b"data: %b\n\n" % DONE.encode()]), EVENTS, collected, count)


def _json(value: Json) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # orjson refuses half of an emoji, which engines escape
        return json.dumps(value, separators=(",", ":")).encode()
