"""Answers whose body burnish changes: as a whole, or while it passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from burnish.proxy.http.connection import Sink
from burnish.proxy.http.errors import UpstreamUnreachable
from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.http.origin import UpstreamResponse
from burnish.proxy.surfaces.lenient import Undecodable
from burnish.system.apart import LARGE_BYTES, OutOfTime, WorkerExit, WorkerProcess

JSON_TYPE = "application/json"
OF_THE_BODY = (b"content-length", b"content-type", b"content-encoding", b"transfer-encoding")
"""Headers that describe the body of an answer."""
Result = TypeVar("Result")


class ChangedAnswer(UpstreamResponse):
    """An answer with another body than the upstream's."""

    def __init__(self, response: UpstreamResponse, content_type: str) -> None:
        self._response = response
        self.status = response.status
        self.headers = _with_type(response.headers, content_type)

    @property
    def finished(self) -> bool:
        return self._response.finished

    @property
    def trailers(self) -> RawHeaders:
        return self._response.trailers

    def read_on(self) -> None:
        self._response.read_on()

    def close(self) -> None:
        self._response.close()


class WholeAnswer(UpstreamResponse):
    """An answer whose whole body is known; ``response`` is the upstream's, if it was asked."""

    def __init__(
        self, response: UpstreamResponse | None, status: int, content: bytes, content_type: str = JSON_TYPE
    ) -> None:
        self._response = response
        self._content = content
        self.status = status
        self.headers = _with_type(response.headers if response else [], content_type)
        self.headers.append((b"content-length", b"%d" % len(content)))

    async def read(self, sink: Sink | None = None) -> bytes:
        content, self._content = self._content, b""
        return content

    @property
    def finished(self) -> bool:
        return True

    def close(self) -> None:
        if self._response:
            self._response.close()


async def read_apart(
    apart: WorkerProcess, content: bytes, encoding: str, read: Callable[[], Result]
) -> Result:
    """Read an answer, in the child process if ``content`` is large. Raises UpstreamUnreachable."""
    # A few compressed bytes may become many.
    large = encoding or len(content) > LARGE_BYTES
    try:
        return await apart.ask(read) if large else read()
    except (OutOfTime, WorkerExit, Undecodable) as error:
        raise UpstreamUnreachable(f"the upstream's answer can't be read: {error}") from error


def _with_type(headers: RawHeaders, content_type: str) -> RawHeaders:
    """Return the headers that hold for another body, too, and its type."""
    kept = [header for header in headers if header[0] not in OF_THE_BODY]
    return [*kept, (b"content-type", content_type.encode())]
