"""The client's side of a request: its body, its answer, and its going away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from http import HTTPStatus
from types import TracebackType
from typing import Any, Protocol, cast

from starlette.types import Message, Receive, Scope, Send

from burnish.proxy.errors import BodyTooLarge, InvalidRequest, UpstreamTimeout
from burnish.proxy.http.connection import Sink
from burnish.proxy.http.headers import Named, RawHeaders, first, to_client
from burnish.proxy.http.response import WRITE, UpstreamCut, UpstreamResponse
from burnish.proxy.records import Outcome
from burnish.proxy.surfaces.lenient import loads_storable

BODILESS = (HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value)


class Noted(Protocol):
    """What takes note of an answer that goes through."""

    outcome: Outcome

    def head(self, response: UpstreamResponse) -> RawHeaders:
        """Take note of the head of the answer; return the headers that burnish adds to it."""
        ...

    def tee(self, chunk: bytes) -> None:
        """Take note of a chunk that goes through."""
        ...


class Client:
    """Cancels the block when the client goes away, and swallows that cancellation."""

    def __init__(self, receive: Receive, *, watch: bool = True) -> None:
        self._receive = receive
        self._watch_at_once = watch
        self._listening: Coroutine[Any, Any, Message] | None = None
        self.gone = False
        self.begun = False
        """Set when the head of the answer is on its way: no other can be given then."""
        self.finished = False
        """Set when the answer is complete: a disconnect after that is no abort."""

    def watch(self) -> None:
        """Listen for the disconnect; call it when the request's body has been read."""
        self._listening = cast("Coroutine[Any, Any, Message]", self._receive())
        self._listen()

    def _listen(self, _: object = None) -> None:
        """Go on with ``receive()`` by hand, from future to future: a task of its own costs as much as all else here."""
        if self._listening is None:  # the answer ended just now
            return
        try:
            waits_for = self._listening.send(None)
        except StopIteration as heard:
            if heard.value["type"] != "http.disconnect":
                self.watch()
            else:
                self.leaves()
        else:
            waits_for._asyncio_future_blocking = False  # as a task would, which it marks itself for
            waits_for.add_done_callback(self._listen)

    def leaves(self) -> None:
        """Take note that it is gone."""
        if not self.finished:
            self.gone = True
            self._task.cancel()

    async def __aenter__(self) -> Client:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        if self._watch_at_once:
            self.watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.finished = True
        if self._listening:
            self._listening.close()
            self._listening = None
        return self.gone and kind is asyncio.CancelledError and self._task.uncancel() == 0


async def read_body(receive: Receive, headers: Named, limit: int) -> bytes:
    """Read a whole body. Raises BodyTooLarge, InvalidRequest."""
    announced = first(headers, b"content-length") or ""
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        part, more = await _body_part(receive)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if part:
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body exceeds {limit} bytes; raise max_body_bytes if that is wanted")


async def _body_part(receive: Receive) -> tuple[bytes, bool]:
    """Return the next part of a body, and whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise InvalidRequest("the client went away before its request was complete")
    return message.get("body", b""), message.get("more_body", False)


def parse(body: bytes) -> dict[str, Any]:
    """Return a body's JSON object. Raises InvalidRequest."""
    try:
        parsed = loads_storable(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidRequest("the body must be a JSON object")
    return parsed


def request_body(
    receive: Receive, headers: Named, client: Client, note: Callable[[bytes], None]
) -> AsyncIterator[bytes] | None:
    """Stream a body; None when the request has none. Watches the client once the body is through.

    ``note`` is told of each part.
    """
    if (first(headers, b"content-length") or "0") == "0" and first(headers, b"transfer-encoding") is None:
        return None

    async def parts() -> AsyncIterator[bytes]:
        more = True
        try:
            while more:
                part, more = await _body_part(receive)
                note(part)
                yield part
        except InvalidRequest:
            client.leaves()
            raise  # so that nobody takes what was sent of it for the whole
        client.watch()

    return parts()


async def stream(response: UpstreamResponse, scope: Scope, send: Send, client: Client, noted: Noted) -> None:
    """Pass an answer on as it comes. Raises UpstreamCut."""
    headers = to_client(response.headers)
    if (
        response.status in BODILESS
    ):  # it may say how long the body would be, which the server takes at its word
        headers = [header for header in headers if header[0].lower() != b"content-length"]
    headers += noted.head(response)
    client.begun = True
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    sink = _teeing(noted, scope.get("extensions", {}).get(WRITE))
    more = True
    while more:
        chunk = await response.read(sink)
        more = not response.finished
        if chunk:
            noted.tee(chunk)
        if not more:
            client.finished = True
            noted.outcome = "complete"
        await send({"type": "http.response.body", "body": chunk, "more_body": more})


def _teeing(noted: Noted, write: Sink | None) -> Sink | None:
    """Return what sends a part of a body at once and has it noted; None before a server that takes none so."""
    if write is None:
        return None

    def sink(part: bytes) -> bool:
        noted.tee(part)
        return write(part)

    return sink


async def in_time(answering: Awaitable[None], client: Client, seconds: float) -> None:
    """Wait no longer than ``total_timeout_s``. Raises UpstreamTimeout, UpstreamCut besides what it raises."""
    try:
        async with asyncio.timeout(seconds):
            await answering
    except UpstreamTimeout:
        raise
    except TimeoutError as error:
        late = f"the answer took longer than total_timeout_s, {seconds:g} s"
        raise (UpstreamCut(late) if client.begun else UpstreamTimeout(late)) from error
