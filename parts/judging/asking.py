"""Asks the judge through the relay, so that any model that burnish reaches can judge. Nothing of it is logged."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

import orjson
from starlette.types import ASGIApp

from burnish.parts.judging.answers import refuses, said
from burnish.proxy.access.access import Identity
from burnish.proxy.http.errors import BurnishError, UpstreamTimeout
from burnish.proxy.relay.inside import call

Fault = Literal["empty", "nonsense", "refused", "cut", "error", "timeout"]
FAULTS: dict[Fault, str] = {
    "empty": "the judge's answer was empty",
    "nonsense": "the judge named neither A nor B as the better reply",
    "refused": "the judge refused",
    "cut": "the judge's reply was cut off at a token limit",
    "error": "the judge couldn't be asked",
    "timeout": "the judge didn't answer in time",
}
OF_THE_UPSTREAM: frozenset[Fault] = frozenset({"error", "timeout"})
"""Faults that the next answer will probably meet as well."""

ANSWER_LIMIT_S = 180.0
"""For one answer, on a busy machine."""
THINKING_TOKENS = 4_096
"""More tokens for a model that reasons first, given after the first answer that holds nothing but reasoning."""
QUOTED = 200


class BadAnswer(Exception):
    """The judge gave no answer that can be used."""

    def __init__(self, fault: Fault, details: str = "") -> None:
        super().__init__(f"{FAULTS[fault]}{f': {details}' if details else ''}")
        self.fault: Fault = fault


class JudgeCaller(NamedTuple):
    """Who has it judged."""

    identity: Identity
    authorization: str | None
    """For an upstream that needs the caller's own key."""


class JudgeAnswer(NamedTuple):
    text: str
    """Without the model's reasoning."""
    cut: bool
    """Whether a token limit ended it."""


class Judge:
    """One model as a judge."""

    def __init__(self, relay: ASGIApp, model: str, asker: JudgeCaller) -> None:
        self._relay = relay
        self._model = model
        self._headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        if asker.authorization:
            self._headers.append((b"authorization", asker.authorization.encode("latin-1", "replace")))
        self._identity = asker.identity
        self._thinking_tokens = 0
        self._limit = "max_tokens"
        self._settings: dict[str, Any] = {"temperature": 0}

    async def ask(self, prompt: str, max_tokens: int) -> JudgeAnswer:
        """Raises BadAnswer."""
        answer = await self._ask(prompt, max_tokens)
        if answer.cut and not answer.text and not self._thinking_tokens:
            self._thinking_tokens = THINKING_TOKENS
            answer = await self._ask(prompt, max_tokens)
        if not answer.text:
            raise BadAnswer("cut" if answer.cut else "empty")
        if refuses(answer.text):
            raise BadAnswer("refused", answer.text[:QUOTED])
        return answer

    async def _ask(self, prompt: str, max_tokens: int) -> JudgeAnswer:
        status, content = await self._send(prompt, max_tokens)
        while status == HTTPStatus.BAD_REQUEST and self._adapts_to(content):
            status, content = await self._send(prompt, max_tokens)
        if status != HTTPStatus.OK:
            details = content[:QUOTED].decode(errors="replace")
            raise BadAnswer("error", f"it answered with status {status}: {details}")
        return _read(content)

    def _adapts_to(self, refusal: bytes) -> bool:
        """Take the parameters that a model refuses out of further requests; return whether there was one."""
        if b"max_completion_tokens" in refusal and self._limit == "max_tokens":
            self._limit = "max_completion_tokens"
            return True
        return b"temperature" in refusal and self._settings.pop("temperature", None) is not None

    async def _send(self, prompt: str, max_tokens: int) -> tuple[int, bytes]:
        """Return status and body of the answer. Raises BadAnswer."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            self._limit: max_tokens + self._thinking_tokens,
            **self._settings,
        }
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                status, _, content = await call(
                    self._relay, self._headers, orjson.dumps(body), self._identity, unlogged=True
                )
        except UpstreamTimeout as error:
            raise BadAnswer("timeout", error.message) from error
        except BurnishError as error:
            raise BadAnswer("error", error.message) from error
        except TimeoutError as error:
            raise BadAnswer("timeout", f"it took longer than {ANSWER_LIMIT_S:g} s") from error
        return status, content


def _read(content: bytes) -> JudgeAnswer:
    """Raises BadAnswer."""
    try:
        choice = orjson.loads(content)["choices"][0]
        message = choice["message"]
        cut = choice.get("finish_reason") == "length"
        if message.get("refusal"):
            raise BadAnswer("refused", str(message["refusal"])[:QUOTED])
        return JudgeAnswer(said(str(message.get("content") or "")), cut)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        details = content[:QUOTED].decode(errors="replace")
        raise BadAnswer("error", f"its answer isn't a chat completion: {details}") from error
