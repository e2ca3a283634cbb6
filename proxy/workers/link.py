"""Messages between two processes of ours, over a socket pair: both ways, in order, each one pickled."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

from burnish.proxy.errors import BurnishError, Unavailable

logger = logging.getLogger(__name__)

LENGTH_BYTES = 4

Told = Callable[[Any], None]
Asked = Callable[[Any], Awaitable[Any]]


class Link(asyncio.Protocol):
    """One end. What is told and what is asked comes out on the other end in the order in which it went in.

    Only ends of a socket pair that this program made speak pickle: nobody else can write to one.
    """

    def __init__(self, told: dict[str, Told], asked: dict[str, Asked]) -> None:
        """Take what to do with what the other end tells (kind → call) and asks (kind → coroutine)."""
        self._told = told
        self._asked = asked
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._asking: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._number = 0
        self.closed = asyncio.Event()
        """Set when the other process is gone."""

    async def over(self, end: socket.socket) -> None:
        """Speak over one end of a socket pair from now on."""
        end.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=end)

    def tell(self, kind: str, content: Any = None) -> None:
        """Say something. Lost when the other process is gone."""
        self._send(("tell", kind, 0, content))

    async def ask(self, kind: str, content: Any = None) -> Any:
        """Ask for something. Raises what the other process raised, and Unavailable when it is gone."""
        if self.closed.is_set():
            raise _gone()
        self._number += 1
        number = self._number
        answer = self._asking[number] = asyncio.get_running_loop().create_future()
        self._send(("ask", kind, number, content))
        try:
            return await answer
        finally:
            self._asking.pop(number, None)

    def close(self) -> None:
        """Let go of the other process."""
        if self._transport:
            self._transport.close()

    def _send(self, message: tuple[str, str, int, Any]) -> None:
        if self._transport and not self.closed.is_set():
            content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._transport.write(len(content).to_bytes(LENGTH_BYTES) + content)

    # -- what the loop tells -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Take each message that is whole by now."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= LENGTH_BYTES:
            begin = at + LENGTH_BYTES
            end = begin + int.from_bytes(self._buffer[at:begin])
            if end > len(self._buffer):
                break
            self._take(*pickle.loads(self._buffer[begin:end]))  # noqa: S301  (see the class)
            at = end
        del self._buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the other process is gone."""
        self.closed.set()
        for answer in self._asking.values():
            if not answer.done():
                answer.set_exception(_gone())
        for task in self._answering:
            task.cancel()

    # -- messages ------------------------------------------------------------------------------------------------------

    def _take(self, way: str, kind: str, number: int, content: Any) -> None:
        if way == "tell":
            self._told[kind](content)
        elif way == "ask":
            task = asyncio.get_running_loop().create_task(self._answer(kind, number, content))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif (answer := self._asking.get(number)) and not answer.done():
            if way == "fault":
                answer.set_exception(content)
            else:
                answer.set_result(content)

    async def _answer(self, kind: str, number: int, content: Any) -> None:
        try:
            found = await self._asked[kind](content)
        except BurnishError as error:
            self._send(("fault", kind, number, error))
        except Exception as error:
            # The process that asks must hear of it, and other kinds of error may not be fit to travel.
            logger.exception("unexpected error while answering %r for a worker", kind)
            self._send(
                ("fault", kind, number, BurnishError(f"burnish failed: {type(error).__name__}: {error}"))
            )
        else:
            self._send(("answer", kind, number, found))


def _gone() -> Unavailable:
    return Unavailable("burnish is stopping: try again when it is back")
