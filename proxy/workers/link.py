"""Messages between two processes of burnish over a socket pair: both ways, in order, pickled."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from burnish.adapters.hosts.base import Endpoint
from burnish.proxy.errors import BurnishError, Unavailable

logger = logging.getLogger(__name__)

LENGTH_BYTES = 4

OnMessage = Callable[[Any], None]
OnRequest = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class EngineState:
    """The versions that workers may use. Sent to them whenever that changes."""

    base: tuple[str, str, int | None] | None
    """Name and digest of the base model, and the tokens of a request if burnish sets them.

    None: burnish only passes through.
    """
    live: Endpoint | None = None
    resident: tuple[Endpoint, ...] = ()
    """All versions that a request may name, the live one included."""
    asleep: bool = False
    """A request has to wake the engine first."""
    known: bool = False
    """See ``Guard.knows_engine``."""


class Link(asyncio.Protocol):
    """One end. Messages and requests arrive in the order in which they were sent.

    Pickle is safe here: both ends belong to a socket pair that this program made, and no one else can write to it.
    """

    def __init__(self, on_message: dict[str, OnMessage], on_request: dict[str, OnRequest]) -> None:
        """Both by kind of message."""
        self._on_message = on_message
        self._on_request = on_request
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._asking: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._number = 0
        self.closed = asyncio.Event()
        """Set when the other process is gone."""

    async def connect(self, end: socket.socket) -> None:
        end.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=end)

    def send(self, kind: str, content: Any = None) -> None:
        """Send a message that gets no answer. It is lost if the other process is gone."""
        self._write(("message", kind, 0, content))

    async def ask(self, kind: str, content: Any = None) -> Any:
        """Return the answer of the other process. Raises the BurnishError that it raised; Unavailable if it is gone."""
        if self.closed.is_set():
            raise _gone()
        self._number += 1
        number = self._number
        answer = self._asking[number] = asyncio.get_running_loop().create_future()
        self._write(("request", kind, number, content))
        try:
            return await answer
        finally:
            self._asking.pop(number, None)

    def close(self) -> None:
        if self._transport:
            self._transport.close()

    def _write(self, message: tuple[str, str, int, Any]) -> None:
        if self._transport and not self.closed.is_set():
            content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._transport.write(len(content).to_bytes(LENGTH_BYTES) + content)

    # -- called by the event loop --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
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
        self.closed.set()
        for answer in self._asking.values():
            if not answer.done():
                answer.set_exception(_gone())
        for task in self._answering:
            task.cancel()

    # -- messages ------------------------------------------------------------------------------------------------------

    def _take(self, way: str, kind: str, number: int, content: Any) -> None:
        if way == "message":
            self._on_message[kind](content)
        elif way == "request":
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
            found = await self._on_request[kind](content)
        except BurnishError as error:
            self._write(("fault", kind, number, error))
        except Exception as error:
            # The process that asks must get an answer, and an error of another kind may not survive pickling.
            logger.exception("unexpected error in a request of kind %r", kind)
            self._write(
                ("fault", kind, number, BurnishError(f"burnish failed: {type(error).__name__}: {error}"))
            )
        else:
            self._write(("answer", kind, number, found))


def _gone() -> Unavailable:
    return Unavailable("burnish is stopping: try again when it is back")
