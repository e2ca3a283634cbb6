"""Completions and passthroughs while they are under way, until the log takes over."""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Scope

from burnish.proxy.client_headers import COMPLETION_ID, INSTRUCTIONS, SESSION_HEADERS, caller_of
from burnish.proxy.http.headers import RawHeaders, encoding_of, first, named_headers, value_of
from burnish.proxy.http.origin import UpstreamResponse
from burnish.proxy.http.tunnel import End
from burnish.proxy.ids import passthrough_id
from burnish.proxy.records import (
    Answerer,
    Completion,
    CompletionEnd,
    Outcome,
    Passthrough,
    RequestFacts,
    Wire,
)
from burnish.proxy.relay.given_tokens import Collected
from burnish.proxy.relay.outbound import Spans
from burnish.proxy.relay.routing import Target
from burnish.proxy.surfaces import SURFACES
from burnish.proxy.surfaces.lenient import Undecodable, decode

# A longer reply is passed through whole, but the log keeps its beginning only, from which nothing is learnt.
CAPTURE_LIMIT_BYTES = 32 * 1024 * 1024
BEGINNING_BYTES = 2 * 1024 * 1024
# Three events of three lines. Nearly all are short, but the last one of Responses repeats the whole answer.
END_LINES = 9
END_BYTES = (4096, 256 * 1024)


@dataclass(slots=True)
class Ending(ABC):
    """How a request is ending; a success is final."""

    clock: float = field(default_factory=time.perf_counter)
    """When it began, by ``time.perf_counter``."""
    status: int | None = None
    first_byte_s: float | None = None
    outcome: Outcome = "cancelled"
    error: str | None = None

    @abstractmethod
    def head(self, response: UpstreamResponse) -> RawHeaders:
        """Record the head of the answer; return the headers that burnish adds to it."""

    @abstractmethod
    def tee(self, chunk: bytes) -> None:
        """Record a chunk that goes through."""

    def says_all(self) -> bool:
        """Whether the format says that the answer is complete, though the upstream has not ended it yet."""
        return False

    def fail(self, outcome: Outcome, error: str) -> None:
        if self.outcome != "complete":
            self.outcome, self.error = outcome, error

    @property
    def total_s(self) -> float:
        return time.perf_counter() - self.clock


@dataclass(slots=True, kw_only=True)
class Flight(Ending):
    id: str
    asked: RequestFacts
    model: str | None
    """None if the request names none."""
    served: Answerer
    body: bytes
    messages: Sequence[dict[str, Any]] = ()
    """What it asks, in chat's form; empty if the request was read in the child process."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The other members of the request, in its own format."""
    threaded: bool = False
    """Whether it continues one of Anthropic's threads."""
    packed: tuple[Scope, bytes] | None = None
    """The request as it came, if it is compressed and the model gets all of ``body``."""
    asks: bool = True
    """Whether it has a message."""
    named_at: Spans | None = None
    """Where the body names the model, if that is known."""
    traceparent: str | None = None
    content_type: str = ""
    content_encoding: str = ""
    chunks: list[bytes] = field(default_factory=list)
    captured_bytes: int = 0
    captures_tokens: bool = False
    """Whether the engine is asked for token ids, too."""
    collected: Collected | None = None
    """The tokens of the latest try; None unless they are captured."""
    instructions: str | None = None
    """What is added to the system prompt."""
    instruction_count: int | None = None
    """None if the caller has none."""
    as_sent: bool = False
    """The engine has refused it with an addition, so it goes as the client sent it."""

    def served_by(self, target: Target) -> None:
        model = target.model or self.asked.model_asked
        self.served = Answerer(target.upstream, model, target.version, target.base_digest, target.table)

    def head(self, response: UpstreamResponse) -> RawHeaders:
        self.status = response.status
        self.content_type = value_of(response.headers, b"content-type").decode("latin-1")
        self.content_encoding = encoding_of(response.headers)
        added = [(COMPLETION_ID, self.id.encode())]
        if self.instruction_count is not None:
            added.append((INSTRUCTIONS, str(self.instruction_count).encode()))
        return added

    def tee(self, chunk: bytes) -> None:
        if self.first_byte_s is None:
            self.first_byte_s = self.total_s
        self.captured_bytes += len(chunk)
        if self.captured_bytes <= CAPTURE_LIMIT_BYTES:
            self.chunks.append(chunk)
        elif self.captured_bytes - len(chunk) <= CAPTURE_LIMIT_BYTES:
            self.chunks = [b"".join(self.chunks)[:BEGINNING_BYTES]]
            self.error = (
                f"only the first {BEGINNING_BYTES} bytes were kept for the log, because the answer has more than "
                f"{CAPTURE_LIMIT_BYTES}"
            )

    def says_all(self) -> bool:
        # A compressed answer would have to be read from its beginning.
        if self.content_encoding or self.captured_bytes > CAPTURE_LIMIT_BYTES:
            return False
        surface = SURFACES[self.asked.surface]
        return surface.reassemble([last_lines(self.chunks)], self.content_type, "").complete

    def finish(self) -> Completion:
        tokens = self.collected.record() if self.collected else None
        return Completion(
            self.id,
            self.asked,
            self.served,
            CompletionEnd(self.outcome, self.total_s, self.status, self.error, self.first_byte_s),
            self.instructions,
            Wire(
                self.body,
                tuple(self.chunks),
                self.content_type,
                self.content_encoding,
                self.traceparent,
                tokens,
            ),
        )


def last_lines(chunks: Sequence[bytes]) -> bytes:
    """Return the last lines of a stream, which hold its last events; they are looked at while others wait."""
    end = b""
    for size in END_BYTES:
        parts: list[bytes] = []
        length = 0
        for chunk in reversed(chunks):
            parts.append(chunk)
            length += len(chunk)
            if length >= size:
                break
        end = b"".join(reversed(parts))[-size:]
        lines = end.rsplit(b"\n", END_LINES)
        if len(lines) > END_LINES:
            return b"\n".join(lines[1:])
    return end


# Servers name model and usage before or behind what may be megabytes of numbers.
ENDS_BYTES = 4096
# A compressed answer can only be read from its beginning. Longer ones are left alone: others wait while this is done.
PACKED_BYTES, UNPACKED_BYTES = 64 * 1024, 1024 * 1024
PATH_CHARS, MODEL_CHARS = 512, 200

# In JSON (inside a string its quotes would be escaped), and as a field of a form.
MODEL = re.compile(
    rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")|name="?model"?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]+)\r\n'
)
USAGE = re.compile(r'"usage"\s*:\s*(?=\{)')
PROMPT_TOKENS = ("prompt_tokens", "input_tokens", "total_tokens")
COMPLETION_TOKENS = ("completion_tokens", "output_tokens")


class Ends:
    """The size of a body, and its beginning and end."""

    def __init__(self) -> None:
        self.size = 0
        self._first = self._last = b""

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if len(self._first) < ENDS_BYTES:
            self._first += part[: ENDS_BYTES - len(self._first)]
        self._last = (self._last + part[-ENDS_BYTES:])[-ENDS_BYTES:]

    def both(self) -> bytes:
        """Return beginning and end; they may overlap."""
        return self._first if self.size <= ENDS_BYTES else self._first + b"\n" + self._last


class PassthroughUnderWay(Ending):
    def __init__(self, scope: Scope, upstream: str) -> None:
        """``upstream``: the main one's name, until a target is picked."""
        super().__init__()
        self._scope = scope
        self._id, self._started_at = passthrough_id(), time.time()
        self.encoding = ""
        self._packed: list[bytes] = []
        self.model: str | None = None
        """The model that the request names, if its body was read."""
        self.upstream = upstream
        self.request, self._response = Ends(), Ends()
        self.chunks: list[bytes] | None = None
        """Of the answer, if it is kept whole; None, too, if it becomes too long."""
        self.content_type = ""

    def head(self, response: UpstreamResponse) -> RawHeaders:
        self.status = response.status
        self.encoding = encoding_of(response.headers)
        self.content_type = value_of(response.headers, b"content-type").decode("latin-1")
        return []

    def tee(self, chunk: bytes) -> None:
        if self.first_byte_s is None:
            self.first_byte_s = self.total_s
        self._response.add(chunk)
        if self.encoding and self._response.size <= PACKED_BYTES:
            self._packed.append(chunk)
        if self.chunks is not None:
            self.chunks.append(chunk)
            if self._response.size > CAPTURE_LIMIT_BYTES:
                self.chunks = None

    def carried(self, client: End, upstream: End, *, ended: bool) -> None:
        """Record what went through a tunnel, and how it ended; not ``ended``: neither side sent for too long."""
        self.request.size, self._response.size = client.received_bytes, upstream.received_bytes
        if client.fault:
            self.fail("cancelled", f"the client's connection broke: {client.fault}")
        elif upstream.fault:
            self.fail("cut", f"the upstream broke off: {upstream.fault}")
        elif not ended:
            self.fail("cut", "neither side sent anything for idle_timeout_s")
        else:
            self.outcome = "complete"

    def finish(self) -> Passthrough:
        usage, headers = self._usage(), named_headers(self._scope)
        return Passthrough(
            id=self._id,
            created_at=self._started_at,
            method=self._scope["method"],
            path=self._scope["path"][:PATH_CHARS],
            model=(self.model or self._named() or "")[:MODEL_CHARS] or None,
            upstream=self.upstream,
            status=self.status,
            outcome=self.outcome,
            error=self.error,
            caller=caller_of(headers),
            session=first(headers, *SESSION_HEADERS),
            request_bytes=self.request.size,
            response_bytes=self._response.size,
            prompt_tokens=_first_count(usage, PROMPT_TOKENS),
            completion_tokens=_first_count(usage, COMPLETION_TOKENS),
            first_byte_s=self.first_byte_s,
            total_s=self.total_s,
        )

    def _named(self) -> str | None:
        """Return the model in the query or the body."""
        if b"model=" in self._scope["query_string"]:
            return next(iter(parse_qs(self._scope["query_string"].decode("latin-1")).get("model", ())), None)
        if match := MODEL.search(self.request.both()):
            quoted, plain = match.groups()
            with suppress(ValueError):  # no text at all, so no name either
                # The log can't hold half characters.
                text = str(json.loads(quoted)).encode("utf-8", "replace") if quoted else plain
                return text.decode()
        return None

    def _usage(self) -> dict[str, Any]:
        """Return the usage that the answer states; {} if it is not found."""
        content = self._unpacked() if self.encoding else self._response.both()
        text = content.decode("utf-8", "replace")
        for at in USAGE.finditer(text):
            try:
                usage, _ = json.JSONDecoder().raw_decode(text, at.end())
            except (ValueError, RecursionError):
                continue
            return dict(usage)
        return {}

    def _unpacked(self) -> bytes:
        """Return a compressed answer; b"" if it is too long or unreadable."""
        if self._response.size <= PACKED_BYTES:
            with suppress(Undecodable):
                return decode(b"".join(self._packed), self.encoding, UNPACKED_BYTES)
        return b""


def _first_count(usage: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """Return the first number of tokens that the log can hold."""
    counts = (usage.get(name) for name in names)
    return next((count for count in counts if type(count) is int and 0 <= count < 2**63), None)
