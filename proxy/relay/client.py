"""The client's side of a request: its body, and its going away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType

from starlette.types import Receive

from burnish.proxy.errors import BodyTooLarge, InvalidRequest
from burnish.proxy.relay.headers import RawHeaders, first


class Client:
    """Cancels the block when the client goes away, and swallows that cancellation."""

    def __init__(self, receive: Receive, *, watch: bool = True) -> None:
        self._receive = receive
        self._watch_at_once = watch
        self._watcher: asyncio.Task[None] | None = None
        self.gone = False
        self.finished = False
        """Set when the answer is complete: a disconnect after that is no abort."""

    def watch(self) -> None:
        """Listen for the disconnect; call it when the request's body has been read."""
        self._watcher = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
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
        if self._watcher:
            self._watcher.cancel()
        return self.gone and kind is asyncio.CancelledError and self._task.uncancel() == 0


async def read_body(receive: Receive, headers: RawHeaders, limit: int) -> bytes:
    """Read a whole body. Raises BodyTooLarge, InvalidRequest."""
    announced = first(headers, b"content-length") or ""
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in _body_parts(receive):
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body exceeds {limit} bytes; raise max_body_bytes if that is wanted")


async def _body_parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client went away before its request was complete")
        if part := message.get("body", b""):
            yield part
        more = message.get("more_body", False)


def request_body(receive: Receive, headers: RawHeaders, client: Client) -> AsyncIterator[bytes] | None:
    """Stream a body; None when the request has none. Watches the client once the body is through."""
    if (first(headers, b"content-length") or "0") == "0" and first(headers, b"transfer-encoding") is None:
        return None

    async def parts() -> AsyncIterator[bytes]:
        async for part in _body_parts(receive):
            yield part
        client.watch()

    return parts()
