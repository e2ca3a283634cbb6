"""The answer of an upstream, as the relay reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from burnish.proxy.http.connection import Sink
from burnish.proxy.http.headers import RawHeaders

WRITE = "burnish.write"
"""ASGI extension of our listener: writes a piece of a response body at once, without waking the application."""


class UpstreamCut(ConnectionError):
    """The upstream broke off in the middle of its answer."""


class UpstreamResponse(ABC):
    """An answer whose head has arrived. Leaving its block ends the exchange, read to the end or not."""

    __slots__ = ("headers", "status")

    status: int
    headers: RawHeaders

    @abstractmethod
    async def read(self, sink: Sink | None = None) -> bytes:
        """Return what has come of the body, undecoded; b"" at its end. Raises UpstreamCut.

        While this waits, pieces may go into the sink instead until it is full. The last piece is always returned.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """True when the next ``read`` returns all that is left."""

    async def whole(self) -> bytes:
        """Return the rest of the body. Raises UpstreamCut."""
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
