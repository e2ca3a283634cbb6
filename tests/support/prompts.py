"""A prompt as training renders it, and as an engine counts it and holds it in its cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from burnish.learner.asked import TEMPLATE, as_asked
from burnish.proxy.records import Answerer, Completion, CompletionEnd, RequestFacts
from burnish.training.rendering import Renderer
from tests.support.token_ids import held

Json = dict[str, Any]
CALLS_TOOLS = Path(__file__).with_name("calls_tools.jinja")
"""A chat template."""


def logged_as_asked(logged: Json) -> Completion:
    """Return a completion of ``/burnish/completions/ID`` as a llama.cpp was asked."""
    parts: list[Any] = [
        kind(**{field: logged[field] for field in kind._fields if field in logged})
        for kind in (RequestFacts, Answerer, CompletionEnd)
    ]
    members = {
        "messages": tuple(logged["messages"]),
        "params": logged["params"],
        "reply": logged["reply"],
    }
    return as_asked(Completion(logged["id"], *parts, **members), "llamacpp")


@dataclass
class Side:
    """One engine, and burnish before it."""

    burnish: httpx.AsyncClient
    engine: httpx.AsyncClient
    renderer: Renderer

    async def asked(self, path: str, body: Json) -> Completion:
        """The logged completion of a request, as the engine was asked."""
        answer = await self.burnish.post(path, json=body)
        assert answer.status_code == 200, answer.text
        name = answer.headers["x-burnish-completion-id"]
        return logged_as_asked((await self.burnish.get(f"/burnish/completions/{name}")).json())

    async def check(self, path: str, body: Json) -> None:
        completion = await self.asked(path, body)
        await self.compare(completion, completion.ended.prompt_tokens)

    async def compare(self, completion: Completion, prompt_tokens: int | None) -> None:
        """Compare a prompt as rendered with the engine's latest, of so many tokens."""
        template = completion.params[TEMPLATE]
        tools = completion.params.get("tools") or ()
        prompt = self.renderer.prompt(completion.messages, tools, template, as_engine=True)
        text = self.renderer._tokenizer.decode(prompt)
        assert len(prompt) == prompt_tokens, text
        assert await held(self.engine, {"prompt": prompt, "reply": []}) >= len(prompt) - 1, text
