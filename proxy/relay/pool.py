"""The one HTTP client of the relay: sends a request's bytes, gives back the response's bytes as they arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from burnish.proxy.config import Config
from burnish.proxy.errors import UpstreamTimeout, UpstreamUnreachable
from burnish.proxy.relay.headers import RawHeaders

# llama.cpp, vLLM and uvicorn close idle connections after 5 s; a request sent into that moment would be lost.
KEEP_ALIVE_S = 4.0
# Large enough for a burst of tokens, small enough that a slow reader holds little memory.
READ_BUFFER_BYTES = 64 * 1024
# Providers answer with long headers (rate limits, policies, cookies); aiohttp's 8 KiB is too little.
HEADER_LIMIT_BYTES = 64 * 1024


class UpstreamCut(ConnectionError):
    """The upstream broke off in the middle of its answer."""


class ConnectFailed(UpstreamUnreachable):
    """No connection was made, so nothing was sent: trying again is safe."""


@dataclass(slots=True)
class UpstreamResponse:
    """An answer whose head has arrived."""

    status: int
    headers: RawHeaders
    _response: aiohttp.ClientResponse

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, undecoded. Raises UpstreamCut."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except TimeoutError as error:
            raise UpstreamCut("the upstream fell silent in the middle of its answer") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamCut(f"the upstream broke off: {error}") from error

    def __enter__(self) -> UpstreamResponse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A body that was read whole goes back to the pool by itself; anything else must not be reused.
        self._response.close()


class Pool:
    """Keeps connections to upstreams. Follows no redirect, keeps no cookie, adds no header."""

    def __init__(self, config: Config) -> None:
        self._connect_s = config.connect_timeout_s
        self._first_byte_s = config.first_byte_timeout_s
        self._idle_s = config.idle_timeout_s
        self._kept = self._session(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S))
        # llama.cpp's server at times closes a connection just when the next request enters it. On this machine a
        # new one costs a tenth of a millisecond, and idle ones would each hold one of the engine's threads.
        self._fresh = self._session(aiohttp.TCPConnector(limit=0, force_close=True))

    def _session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=HEADER_LIMIT_BYTES,
            max_field_size=HEADER_LIMIT_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_read=self._idle_s),
        )

    async def send(
        self,
        method: str,
        url: str,
        headers: RawHeaders,
        body: bytes | AsyncIterator[bytes] | None,
        *,
        reuse: bool = True,
    ) -> UpstreamResponse:
        """Send a request and wait for the head of its answer; ``reuse``: on a connection that was kept.

        Raises ConnectFailed, UpstreamUnreachable, UpstreamTimeout.
        """
        fields = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
        try:
            response = await (self._kept if reuse else self._fresh).request(
                method,
                URL(url, encoded=True),
                headers=fields,
                data=body,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._connect_s, sock_read=self._first_byte_s
                ),
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectFailed(
                f"cannot connect to {_origin(url)}: {_words(error)}. Is it running?"
            ) from error
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"{_origin(url)} did not begin to answer within {self._first_byte_s:g} s"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UpstreamUnreachable(
                f"{_origin(url)} broke off before it answered: {_words(error)}"
            ) from error
        return UpstreamResponse(response.status, list(response.raw_headers), response)

    async def close(self) -> None:
        """Close every connection."""
        await self._kept.close()
        await self._fresh.close()


def _origin(url: str) -> str:
    return str(URL(url, encoded=True).origin())


def _words(error: BaseException) -> str:
    cause = getattr(error, "os_error", None) or error
    return str(cause) or type(cause).__name__
