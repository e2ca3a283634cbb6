"""What is known of one completion while it is under way, until the log takes over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from burnish.proxy.client_headers import COMPLETION_ID, INSTRUCTIONS
from burnish.proxy.http.headers import RawHeaders, by_name, first
from burnish.proxy.http.response import UpstreamResponse
from burnish.proxy.records import Exchange, Outcome
from burnish.proxy.relay.routing import Target

# A reply longer than this is passed through whole, but its copy for the log ends here.
CAPTURE_LIMIT_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class Flight:
    """One completion under way."""

    completion_id: str
    surface: str
    started_at: float
    clock: float
    body: bytes
    model: str | None
    caller: str
    session: str | None
    retry: int
    sub_agent: bool
    traceparent: str | None = None
    target: Target | None = None
    status: int | None = None
    content_type: str = ""
    content_encoding: str = ""
    first_byte_s: float | None = None
    chunks: list[bytes] = field(default_factory=list)
    captured_bytes: int = 0
    outcome: Outcome = "cancelled"
    error: str | None = None
    instructions: str | None = None
    """What is added to the system prompt."""
    instruction_count: int | None = None
    """None if the caller has none."""
    as_sent: bool = False
    """The engine has refused it with an addition, so it goes as the client sent it."""

    def head(self, response: UpstreamResponse) -> RawHeaders:
        """Take note of the head of the answer; return the headers that burnish adds to it."""
        self.status = response.status
        headers = by_name(response.headers)
        self.content_type = first(headers, b"content-type") or ""
        self.content_encoding = (first(headers, b"content-encoding") or "").lower()
        added = [(COMPLETION_ID, self.completion_id.encode())]
        if self.instruction_count is not None:
            added.append((INSTRUCTIONS, str(self.instruction_count).encode()))
        return added

    def tee(self, chunk: bytes) -> None:
        """Keep a reference to a chunk that goes through."""
        if self.first_byte_s is None:
            self.first_byte_s = time.perf_counter() - self.clock
        self.captured_bytes += len(chunk)
        if self.captured_bytes <= CAPTURE_LIMIT_BYTES:
            self.chunks.append(chunk)
        else:
            self.error = f"only the first {CAPTURE_LIMIT_BYTES} bytes were kept for the log"

    def fail(self, outcome: Outcome, error: str) -> None:
        """Say how it ended, unless it had ended well before."""
        if self.outcome != "complete":
            self.outcome, self.error = outcome, error

    def landed(self, upstream: str) -> Exchange:
        """Return the record for the log."""
        target = self.target
        return Exchange(
            completion_id=self.completion_id,
            surface=self.surface,
            started_at=self.started_at,
            first_byte_s=self.first_byte_s,
            total_s=time.perf_counter() - self.clock,
            request_body=self.body,
            status=self.status,
            content_type=self.content_type,
            content_encoding=self.content_encoding,
            chunks=tuple(self.chunks),
            outcome=self.outcome,
            error=self.error,
            upstream=upstream,
            model_asked=self.model or "",
            model_served=(target and target.model) or self.model or "",
            adapter_version=target.version if target else None,
            base_digest=target.base_digest if target else None,
            caller=self.caller,
            session=self.session,
            retry=self.retry,
            sub_agent=self.sub_agent,
            instructions=self.instructions,
            traceparent=self.traceparent,
        )
