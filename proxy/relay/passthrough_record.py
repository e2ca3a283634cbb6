"""What is noted of one request that is merely passed through, while it is under way: figures, and never a body."""

from __future__ import annotations

import json
import re
import time
import zlib
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Scope

from burnish.proxy.client_headers import SESSION_HEADERS, caller_of
from burnish.proxy.http.headers import RawHeaders, by_name, first, named_headers
from burnish.proxy.http.response import UpstreamResponse
from burnish.proxy.http.tunnel import End
from burnish.proxy.ids import passthrough_id
from burnish.proxy.records import Exchange, Outcome, PassthroughFigures

# Servers name model and usage before or behind what may be megabytes of numbers.
ENDS_BYTES = 4096
# A compressed answer can only be read from its beginning. Longer ones are left alone: others wait while this is done.
PACKED_BYTES, UNPACKED_BYTES = 64 * 1024, 1024 * 1024
PACKED = ("gzip", "x-gzip", "deflate")
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
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
        """Take note of a part."""
        self.size += len(part)
        if len(self._first) < ENDS_BYTES:
            self._first += part[: ENDS_BYTES - len(self._first)]
        self._last = (self._last + part[-ENDS_BYTES:])[-ENDS_BYTES:]

    def both(self) -> bytes:
        """Return beginning and end; they may overlap."""
        return self._first if self.size <= ENDS_BYTES else self._first + b"\n" + self._last


class PassthroughUnderWay:
    """One request under way."""

    def __init__(self, scope: Scope) -> None:
        headers = named_headers(scope)
        self._id = passthrough_id()
        self._started_at, self._clock = time.time(), time.perf_counter()
        self._method, self._path, self._query = scope["method"], scope["path"], scope["query_string"]
        self._caller, self._session = caller_of(headers), first(headers, *SESSION_HEADERS)
        self._status: int | None = None
        self._first_byte_s: float | None = None
        self._encoding = ""
        self._packed: list[bytes] = []
        self._error: str | None = None
        self.outcome: Outcome = "cancelled"
        self.model: str | None = None
        """What the request names, where somebody has read that."""
        self.asked, self._answered = Ends(), Ends()

    def head(self, response: UpstreamResponse) -> RawHeaders:
        """Take note of the head of the answer, to which nothing is added."""
        self._status = response.status
        self._encoding = (first(by_name(response.headers), b"content-encoding") or "").lower()
        return []

    def tee(self, chunk: bytes) -> None:
        """Take note of a chunk that goes through."""
        if self._first_byte_s is None:
            self._first_byte_s = time.perf_counter() - self._clock
        self._answered.add(chunk)
        if self._encoding and self._answered.size <= PACKED_BYTES:
            self._packed.append(chunk)

    def carried(self, client: End, upstream: End, *, ended: bool) -> None:
        """Take note of what went through a tunnel, and how it ended; not ``ended``: it was silent for too long."""
        self.asked.size, self._answered.size = client.heard_bytes, upstream.heard_bytes
        if client.fault:
            self.fail("cancelled", f"the client's connection broke: {client.fault}")
        elif upstream.fault:
            self.fail("cut", f"the upstream broke off: {upstream.fault}")
        elif not ended:
            self.fail("cut", "neither side said anything for idle_timeout_s")
        else:
            self.outcome = "complete"

    def fail(self, outcome: Outcome, error: str) -> None:
        """Say how it ended, unless it had ended well before."""
        if self.outcome != "complete":
            self.outcome, self._error = outcome, error

    def over(self, upstream: str) -> Exchange:
        """Return the record for the log."""
        usage = self._usage()
        passthrough = PassthroughFigures(
            method=self._method,
            path=self._path[:PATH_CHARS],
            request_bytes=self.asked.size,
            response_bytes=self._answered.size,
            prompt_tokens=_first_count(usage, PROMPT_TOKENS),
            completion_tokens=_first_count(usage, COMPLETION_TOKENS),
        )
        model = (self.model or self._named() or "")[:MODEL_CHARS]
        return Exchange(
            completion_id=self._id,
            surface="",
            started_at=self._started_at,
            first_byte_s=self._first_byte_s,
            total_s=time.perf_counter() - self._clock,
            request_body=b"",
            status=self._status,
            content_type="",
            content_encoding="",
            chunks=(),
            outcome=self.outcome,
            error=self._error,
            upstream=upstream,
            model_asked=model,
            model_served=model,
            adapter_version=None,
            caller=self._caller,
            session=self._session,
            passthrough=passthrough,
        )

    def _named(self) -> str | None:
        """Return the model that the query or the body names."""
        if b"model=" in self._query:
            return next(iter(parse_qs(self._query.decode("latin-1")).get("model", ())), None)
        if found := MODEL.search(self.asked.both()):
            quoted, plain = found.groups()
            try:
                # Half characters are none that the log can hold.
                return (
                    str(json.loads(quoted)).encode("utf-8", "replace").decode() if quoted else plain.decode()
                )
            except ValueError:  # no text at all, so no name either
                return None
        return None

    def _usage(self) -> dict[str, Any]:
        """Return the usage that the answer states in plain sight; {} where it has none."""
        found = self._unpacked() if self._encoding else self._answered.both()
        text = found.decode("utf-8", "replace")
        for at in USAGE.finditer(text):
            try:
                usage, _ = json.JSONDecoder().raw_decode(text, at.end())
            except (ValueError, RecursionError):
                continue
            return dict(usage)
        return {}

    def _unpacked(self) -> bytes:
        """Return the beginning and the end of a compressed answer; b"" where that is too much, or cannot be read."""
        if self._answered.size > PACKED_BYTES or self._encoding not in PACKED:
            return b""
        whole = Ends()
        with suppress(zlib.error):
            whole.add(zlib.decompressobj(GZIP_OR_ZLIB).decompress(b"".join(self._packed), UNPACKED_BYTES))
        return whole.both()


def _first_count(usage: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((usage[name] for name in names if _is_count(usage.get(name))), None)


def _is_count(value: Any) -> bool:
    """Whether a value is a number of tokens that the log can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
