"""The client's side of a request: reads its body, sends its answer, notices that it left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from types import TracebackType
from typing import Any

from starlette.types import Receive, Scope, Send

from burnish.proxy.client_headers import without_ours
from burnish.proxy.http.connection import Sink
from burnish.proxy.http.errors import BodyTooLarge, BurnishError, InvalidRequest, UpstreamTimeout
from burnish.proxy.http.headers import Named, first, to_client, trailers
from burnish.proxy.http.listener import ON_LEAVE, TRAIL, WRITE
from burnish.proxy.http.origin import UpstreamCut, UpstreamResponse
from burnish.proxy.relay.flight import Ending
from burnish.proxy.surfaces import ChatRequest, Surface, is_usual
from burnish.proxy.surfaces.lenient import Json, TooLong, Undecodable, decode, loads_storable

BODILESS = (HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value)


class Client:
    """Context manager that cancels its block when the client leaves, and swallows that cancellation."""

    def __init__(self, scope: Scope, *, watch: bool = True) -> None:
        self._on_leave = scope["extensions"][ON_LEAVE]
        self._watch_at_once = watch
        self.gone = False
        self.begun = False
        """True once the head of the answer was sent."""
        self.finished = False
        """True once the answer is complete. A client that leaves later has all of it."""

    def watch(self) -> None:
        """Notice from now on that the client leaves; call it after the whole body was read."""
        self._on_leave(self.leave)

    def leave(self) -> None:
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
        return self.gone and kind is asyncio.CancelledError and self._task.uncancel() == 0


async def read_body(receive: Receive, headers: Named, limit: int) -> bytes:
    """Read a whole body. Raises BodyTooLarge, InvalidRequest."""
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    body, more = await _body_part(receive)
    if len(body) > limit:
        raise _too_large(limit)
    if not more:
        return body
    parts, size = [body], len(body)
    while more:
        part, more = await _body_part(receive)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is longer than {limit} bytes. If you need that, raise max_body_bytes")


async def _body_part(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise InvalidRequest("the client left before its request was complete")
    return message.get("body", b""), message.get("more_body", False)


async def unpacked(body: bytes, headers: Named, limit: int) -> bytes:
    """Undo the content-encoding of a body; the same object if it has none. Raises InvalidRequest."""
    encoding = first(headers, b"content-encoding")
    if not encoding:
        return body
    try:
        return await asyncio.to_thread(decode, body, encoding, limit)
    except TooLong as error:
        raise InvalidRequest(f"the decompressed body is longer than max_body_bytes, {limit} bytes") from error
    except Undecodable as error:
        raise InvalidRequest(f"the body can't be decompressed: {error}") from error


def parse(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raises InvalidRequest."""
    try:
        parsed = loads_storable(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidRequest("the body must be a JSON object")
    return parsed


def read_request(surface: Surface, path: str, text: bytes) -> tuple[Json, ChatRequest]:
    """Return the body of a completion and what it asks. Raises InvalidRequest."""
    body = parse(text)
    if not is_usual(path) and not any(name in body for name in surface.fields):
        raise InvalidRequest(
            f"{' or '.join(surface.fields)} is missing from the body", param=surface.fields[0]
        )
    return body, surface.read(body)


def request_body(
    receive: Receive, headers: Named, client: Client, record: Callable[[bytes], None]
) -> AsyncIterator[bytes] | None:
    """Stream a body, or return None if there is none. Watches the client after the last part.

    ``record`` gets each part.
    """
    if (first(headers, b"content-length") or "0") == "0" and first(headers, b"transfer-encoding") is None:
        return None

    async def parts() -> AsyncIterator[bytes]:
        more = True
        try:
            while more:
                part, more = await _body_part(receive)
                record(part)
                yield part
        except InvalidRequest:
            client.leave()
            raise  # what was sent must not be taken for the whole body
        client.watch()

    return parts()


async def stream(
    response: UpstreamResponse, scope: Scope, send: Send, client: Client, ending: Ending
) -> None:
    """Pass an answer on as it arrives. Raises UpstreamCut."""
    headers = to_client(response.headers)
    extensions = scope["extensions"]
    # A length would be that of the body that isn't there, and the server would insist on it.
    if response.status in BODILESS:
        headers = [header for header in headers if header[0] != b"content-length"]
    headers += ending.head(response)
    client.begun = True
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    sink = _teeing(ending, extensions.get(WRITE))
    more = True
    try:
        while more:
            chunk = await response.read(sink)
            more = not response.finished
            if chunk:
                ending.tee(chunk)
            if not more:
                client.finished = True
                ending.outcome = "complete"
                if response.trailers:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    chunk = b""
                    extensions[TRAIL](trailers(to_client(without_ours(response.trailers))))
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
    except asyncio.CancelledError:
        if ending.says_all():
            response.read_on()
        raise


def _teeing(ending: Ending, write: Sink | None) -> Sink | None:
    """Return a sink that records a piece and sends it at once; None if the server has no WRITE extension."""
    if write is None:
        return None

    def sink(part: bytes) -> bool:
        ending.tee(part)
        return write(part)

    return sink


async def answered(
    answering: Awaitable[None], client: Client, ending: Ending, total_s: float | None = None
) -> None:
    """Run the answer to a request, within ``total_s`` if that is set, and record its end. Raises BurnishError."""
    try:
        await (_in_time(answering, client, total_s) if total_s else answering)
    except UpstreamCut as error:
        ending.fail("cut" if client.begun else "failed", error.message)
        if not client.begun:
            raise
        # After a return without the last chunk the server drops the connection, so the client sees that the stream was
        # cut.
    except BurnishError as error:
        ending.fail("failed", error.message)
        raise
    finally:
        if client.gone:
            ending.fail("cancelled", "the client went away")


async def _in_time(answering: Awaitable[None], client: Client, seconds: float) -> None:
    """Limit an answer to ``seconds``. Raises UpstreamTimeout or UpstreamCut after that."""
    try:
        async with asyncio.timeout(seconds):
            await answering
    except UpstreamTimeout:
        raise
    except TimeoutError as error:
        late = f"the answer took longer than total_timeout_s, {seconds:g} s"
        raise (UpstreamCut(late) if client.begun else UpstreamTimeout(late)) from error
