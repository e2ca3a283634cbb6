"""An answer that burnish has as a whole before the client gets it, because it changes it."""

from __future__ import annotations

from burnish.proxy.http.connection import Sink
from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.http.origin import UpstreamResponse

JSON_TYPE = "application/json"
OF_THE_BODY = (b"content-length", b"content-type", b"content-encoding", b"transfer-encoding")
"""Headers that describe the body of an answer."""


class WholeAnswer(UpstreamResponse):
    """An answer whose whole body is known; ``response`` is the upstream's, if it was asked."""

    def __init__(
        self,
        response: UpstreamResponse | None,
        status: int,
        content: bytes,
        *,
        as_it_came: bool = False,
        content_type: str = JSON_TYPE,
    ) -> None:
        """``as_it_came``: burnish wrote nothing of it."""
        self._response = response
        self._content = content
        self.status = status
        if as_it_came and response:
            self.headers = response.headers
            return
        kept = kept_headers(response.headers) if response else []
        self.headers = [*kept, (b"content-type", content_type.encode())]
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


def kept_headers(headers: RawHeaders) -> RawHeaders:
    """Return the headers of an answer that hold for another body, too."""
    return [header for header in headers if header[0] not in OF_THE_BODY]
