"""burnish's own requests to an engine: load, list, probe."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable
from functools import cache
from http import HTTPStatus
from typing import Any

import httpx
import orjson

from burnish.adapters.errors import EngineError, EngineRefused, EngineUnreachable, ProbeFailed
from burnish.adapters.hosts.base import Endpoint

# An engine answers these in milliseconds; on an overloaded machine it may wait for a core.
ASK_TIMEOUT_S = 10.0
# A few tokens, on a machine that may be busy with eight streams and a trainer.
PROBE_TIMEOUT_S = 60.0
PROBE_TOKENS = 4
# How much of an error page goes into a message.
REASON_CHARACTERS = 300

FAULTS = (httpx.HTTPError, httpx.InvalidURL, OSError)
"""What a client of ``engine_client`` raises when it gets no answer. It has no time limit: use ``asyncio.timeout``."""


def engine_client() -> httpx.AsyncClient:
    """Return a client for requests to an engine: past any proxy, and each on a connection of its own.

    No connection is kept, because some engines close one just as the next request enters it.
    """
    return httpx.AsyncClient(
        trust_env=False,
        verify=_authorities(),
        timeout=None,  # noqa: S113  (asyncio.timeout limits the whole exchange, httpx only its steps)
        limits=httpx.Limits(max_keepalive_connections=0),
        headers={"connection": "close"},
        follow_redirects=True,
    )


@cache
def _authorities() -> ssl.SSLContext:
    """Trust the authorities of the system, or those in SSL_CERT_FILE. Loading them takes 20 ms, so it is done once."""
    return ssl.create_default_context()


class EngineApi:
    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.api_key = api_key
        self._client: httpx.AsyncClient | None = None

    async def ask(self, method: str, path: str, body: Any = None, *, timeout_s: float = ASK_TIMEOUT_S) -> Any:
        """Send a request; return the JSON of the answer, or its text if it isn't JSON.

        An asynchronous iterable of bytes is sent as it is, any other ``body`` as JSON. Raises EngineRefused when the
        status is an error, EngineUnreachable when no whole answer comes.
        """
        self._client = self._client or engine_client()
        raw = isinstance(body, AsyncIterable)
        headers = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        if body is not None:
            headers["content-type"] = "application/octet-stream" if raw else "application/json"
        content = body if raw or body is None else orjson.dumps(body)
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.request(
                    method, self.url + path, content=content, headers=headers
                )
        except TimeoutError as error:
            raise EngineUnreachable(f"{self.url}{path} did not answer within {timeout_s:g} s") from error
        except FAULTS as error:
            raise EngineUnreachable(f"{self.url}{path} cannot be reached: {error}") from error
        try:
            answer: Any = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            answer = response.content.decode(errors="replace")
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            fault = answer.get("error", answer) if isinstance(answer, dict) else answer
            fault = fault.get("message", fault) if isinstance(fault, dict) else fault
            reason = str(fault)[:REASON_CHARACTERS]
            raise EngineRefused(
                f"{path} answered {response.status_code}: {reason}", response.status_code, reason
            )
        return answer

    async def probe(self, endpoint: Endpoint) -> str:
        """Generate a few tokens with an endpoint's model; return the name in the answer. Raises ProbeFailed."""
        # Plain text: a chat template adds forty tokens, which cost more than the rest of a swap on a busy machine.
        body: dict[str, Any] = {"model": endpoint.model, "prompt": "Hello", "max_tokens": PROBE_TOKENS}
        body |= {"temperature": 0} | dict(endpoint.fields)
        try:
            reply = await self.ask("POST", "/v1/completions", body, timeout_s=PROBE_TIMEOUT_S)
            tokens = int(reply["usage"]["completion_tokens"])
        except (EngineError, KeyError, TypeError, ValueError) as error:
            raise ProbeFailed(
                f"{endpoint.model} was loaded, but a test generation failed: {error}"
            ) from error
        if tokens < 1:
            raise ProbeFailed(f"{endpoint.model} was loaded, but generates nothing")
        return str(reply.get("model"))

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()
            self._client = None
