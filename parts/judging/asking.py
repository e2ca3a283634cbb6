"""Asks the judge through the relay, so that any model that burnish reaches can judge. Nothing of it is logged."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Literal

from starlette.types import ASGIApp

from burnish.parts.judging.answers import refuses, said
from burnish.proxy.http.errors import BurnishError, UpstreamTimeout
from burnish.proxy.relay.inside import Answer, Asker, NoAnswer, ask

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


class Judge:
    def __init__(self, relay: ASGIApp, model: str, asker: Asker) -> None:
        self._relay = relay
        self._model = model
        self._asker = asker
        self._thinking_tokens = 0
        self._limit = "max_tokens"
        self._settings: dict[str, Any] = {"temperature": 0}

    async def ask(self, prompt: str, max_tokens: int) -> Answer:
        """Return the answer without the model's reasoning. Raises BadAnswer."""
        answer = await self._ask(prompt, max_tokens)
        if answer.cut and not answer.text and not self._thinking_tokens:
            self._thinking_tokens = THINKING_TOKENS
            answer = await self._ask(prompt, max_tokens)
        if not answer.text:
            raise BadAnswer("cut" if answer.cut else "empty")
        if refuses(answer.text):
            raise BadAnswer("refused", answer.text[:QUOTED])
        return answer

    async def _ask(self, prompt: str, max_tokens: int) -> Answer:
        request = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            self._limit: max_tokens + self._thinking_tokens,
            **self._settings,
        }
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                answer = await ask(self._relay, request, self._asker, unlogged=True)
        except NoAnswer as error:
            if error.status == HTTPStatus.BAD_REQUEST and self._adapts_to(error.content):
                return await self._ask(prompt, max_tokens)
            raise BadAnswer("error", str(error)) from error
        except UpstreamTimeout as error:
            raise BadAnswer("timeout", error.message) from error
        except BurnishError as error:
            raise BadAnswer("error", error.message) from error
        except TimeoutError as error:
            raise BadAnswer("timeout", f"it took longer than {ANSWER_LIMIT_S:g} s") from error
        if answer.refusal:
            raise BadAnswer("refused", answer.refusal[:QUOTED])
        return answer._replace(text=said(answer.text))

    def _adapts_to(self, refusal: bytes) -> bool:
        """Take the parameters that a model refuses out of further requests; return whether there was one."""
        if b"max_completion_tokens" in refusal and self._limit == "max_tokens":
            self._limit = "max_completion_tokens"
            return True
        return b"temperature" in refusal and self._settings.pop("temperature", None) is not None
