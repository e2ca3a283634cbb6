"""Requests to an engine's HTTP API that are ours: load, list, probe."""

from __future__ import annotations

from collections.abc import AsyncIterable
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson

from burnish.adapters.errors import EngineError, EngineRefused, EngineUnreachable, ProbeFailed
from burnish.adapters.hosts.base import Endpoint

# An engine answers these in milliseconds; on an overloaded machine it may wait for a core.
ASK_TIMEOUT_S = 10.0
# A few tokens, on a machine that may be busy with eight streams and a trainer.
PROBE_TIMEOUT_S = 60.0
PROBE_TOKENS = 4
# How much of an error page goes into a message.
SAID_CHARACTERS = 300


class EngineApi:
    """One engine's HTTP API, by the URL of its root."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.api_key = api_key
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout_s: float = ASK_TIMEOUT_S,
    ) -> Any:
        """Send a request; return its JSON, or its text where it is none.

        ``body`` is sent as it is when it is an asynchronous iterable of bytes, else as JSON. Raises EngineRefused when
        the status is an error, EngineUnreachable when there is no whole answer.
        """
        if self._session is None:
            # No connection is kept: some engines close one just as the next request enters it.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        raw = isinstance(body, AsyncIterable)
        headers = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        if body is not None:
            headers["content-type"] = "application/octet-stream" if raw else "application/json"
        try:
            async with self._session.request(
                method,
                self.url + path,
                data=body if raw or body is None else orjson.dumps(body),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as response:
                content = await response.read()
        except TimeoutError as error:
            raise EngineUnreachable(f"{self.url}{path} did not answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineUnreachable(f"{self.url}{path} cannot be reached: {error}") from error
        try:
            answer: Any = orjson.loads(content)
        except orjson.JSONDecodeError:
            answer = content.decode(errors="replace")
        if response.status >= HTTPStatus.BAD_REQUEST:
            said = _message(answer)
            raise EngineRefused(f"{path} answered {response.status}: {said}", response.status, said)
        return answer

    async def probe(self, endpoint: Endpoint) -> str:
        """Generate a few tokens for real under an endpoint's name; return as whom it answered. Raises ProbeFailed."""
        # No chat template: its forty tokens would cost more time than the rest of a swap on a busy machine.
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
        """Close what is open."""
        if self._session:
            await self._session.close()
            self._session = None


def _message(answer: Any) -> str:
    """Return what an error answer says, in whichever of the usual shapes."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if isinstance(error, dict):
        error = error.get("message", error)
    return str(error)[:SAID_CHARACTERS]
