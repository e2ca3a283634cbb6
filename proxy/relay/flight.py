"""One completion while it is under way, until the log takes over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from burnish.proxy.client_headers import COMPLETION_ID, INSTRUCTIONS
from burnish.proxy.http.headers import RawHeaders, by_name, first
from burnish.proxy.http.response import UpstreamResponse
from burnish.proxy.records import Asked, Completion, Ended, Outcome, Served, Wire
from burnish.proxy.relay.routing import Target

# A longer reply is passed through whole, but its copy for the log ends here.
CAPTURE_LIMIT_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class Ending:
    """How a request is ending; a success is final."""

    clock: float = field(default_factory=time.perf_counter)
    """When it began, by ``time.perf_counter``."""
    status: int | None = None
    first_byte_s: float | None = None
    outcome: Outcome = "cancelled"
    error: str | None = None

    def fail(self, outcome: Outcome, error: str) -> None:
        if self.outcome != "complete":
            self.outcome, self.error = outcome, error

    def first_byte(self) -> None:
        if self.first_byte_s is None:
            self.first_byte_s = time.perf_counter() - self.clock

    @property
    def total_s(self) -> float:
        return time.perf_counter() - self.clock


@dataclass(slots=True, kw_only=True)
class Flight(Ending):
    """One completion under way."""

    id: str
    asked: Asked
    model: str | None
    """None if the request names none."""
    served: Served
    body: bytes
    traceparent: str | None = None
    content_type: str = ""
    content_encoding: str = ""
    chunks: list[bytes] = field(default_factory=list)
    captured_bytes: int = 0
    instructions: str | None = None
    """What is added to the system prompt."""
    instruction_count: int | None = None
    """None if the caller has none."""
    as_sent: bool = False
    """The engine has refused it with an addition, so it goes as the client sent it."""

    def served_by(self, target: Target) -> None:
        model = target.model or self.asked.model_asked
        self.served = Served(self.served.upstream, model, target.version, target.base_digest)

    def head(self, response: UpstreamResponse) -> RawHeaders:
        """Record the head of the answer; return the headers that burnish adds to it."""
        self.status = response.status
        headers = by_name(response.headers)
        self.content_type = first(headers, b"content-type") or ""
        self.content_encoding = (first(headers, b"content-encoding") or "").lower()
        added = [(COMPLETION_ID, self.id.encode())]
        if self.instruction_count is not None:
            added.append((INSTRUCTIONS, str(self.instruction_count).encode()))
        return added

    def tee(self, chunk: bytes) -> None:
        """Keep a reference to a chunk that goes through."""
        self.first_byte()
        self.captured_bytes += len(chunk)
        if self.captured_bytes <= CAPTURE_LIMIT_BYTES:
            self.chunks.append(chunk)
        else:
            self.error = f"only the first {CAPTURE_LIMIT_BYTES} bytes were kept for the log"

    def finish(self) -> Completion:
        """Return the record for the log."""
        return Completion(
            self.id,
            self.asked,
            self.served,
            Ended(self.outcome, self.total_s, self.status, self.error, self.first_byte_s),
            self.instructions,
            Wire(self.body, tuple(self.chunks), self.content_type, self.content_encoding, self.traceparent),
        )
