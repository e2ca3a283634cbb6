"""burnish's own requests to an engine: load, list, go on with a context."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable
from functools import cache
from http import HTTPStatus
from typing import Any

import httpx
import orjson

from burnish.adapters.errors import EngineRefused, EngineUnreachable, ProbeFailed
from burnish.adapters.hosts.base import Continuation, Endpoint

# An engine answers these in milliseconds; on an overloaded machine it may wait for a core.
ASK_TIMEOUT_S = 10.0
# A few tokens, on a machine that may be busy with eight streams and a trainer.
PROBE_TIMEOUT_S = 60.0
# MLX gives eleven at most.
LIKELIEST = 10
# How much of an error page goes into a message.
REASON_CHARACTERS = 300

ID = "token_id:"
"""So vLLM begins the name of a token with ``return_tokens_as_token_ids``."""

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

    async def continuation(
        self,
        endpoint: Endpoint,
        prompt: str | list[int],
        tokens: int,
        members: dict[str, Any],
        timeout_s: float = PROBE_TIMEOUT_S,
    ) -> Continuation:
        """Go on with a prompt. ``members``: what this engine wants in the body besides. Raises EngineError."""
        body = {"model": endpoint.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "seed": 0}
        body |= members | dict(endpoint.fields)
        reply = await self.ask("POST", "/v1/completions", body, timeout_s=timeout_s)
        try:
            choice = reply["choices"][0]
            return Continuation(str(choice["text"]), _likeliest(choice.get("logprobs") or {}))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ProbeFailed(f"its answer isn't a completion: {reply}"[:REASON_CHARACTERS]) from error

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()
            self._client = None


def _likeliest(logprobs: dict[str, Any]) -> dict[int | str, float]:
    """Read the first token's alternatives: chat's form (llama.cpp, MLX), or that of completions (vLLM, SGLang)."""
    if content := logprobs.get("content"):
        return {top.get("id", top["token"]): float(top["logprob"]) for top in content[0]["top_logprobs"]}
    tops: dict[str, float] = (logprobs.get("top_logprobs") or [{}])[0]
    return {
        int(name.removeprefix(ID)) if name.startswith(ID) else name: float(logp)
        for name, logp in tops.items()
    }
