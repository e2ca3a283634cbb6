"""Replies of candidate and incumbent to the same prompts, sampled from the engine that serves them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import cycle, takewhile
from typing import Any, Literal

import httpx
import orjson

from burnish.adapters import facts
from burnish.adapters.errors import EngineError
from burnish.adapters.gate import Known
from burnish.adapters.hosts.api import FAULTS, engine_client
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.questions import QUESTIONS
from burnish.proxy.records import Completion
from burnish.proxy.surfaces.chat import SYSTEM_ROLES
from burnish.training.job import Rollout

logger = logging.getLogger(__name__)

# Two versions answer each: some 100 replies, two minutes on two busy cores. With 24, four more faults than before
# were chance; with 48 they are half as many of all (`python -m bench.gate_power`).
MAX_PROMPTS = 48
# Looked through for prompts that were not learnt from; an agent's are long.
RECENT = 96
# An agent's prompts are long: of those with tools, a quarter. `python -m bench.gate_power` says what that shows.
MAX_WITH_TOOLS = 12
# What shows a reply's character at a bearable price; both versions are cut alike.
MAX_TOKENS = 192
# Above it even a sound model babbles, and the gate would judge the dice.
MAX_TEMPERATURE = 1.0
# For each version; the engine's other slots are left to the users.
AT_ONCE = 2
# One reply, on a machine that is busy with everything else.
REPLY_TIMEOUT_S = 180.0
SEED = 20_000
"""Sent with each request: the same prompt is sampled with the same dice from both versions."""
_FACT, _ORDINARY = "fact_", "ordinary_"
"""Their ids begin so, as no completion's does."""

_PASSED_ON = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_WITH_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
"""Passthrough on as they are; engines refuse the others where there is no tool."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked, and how."""

    id: str
    messages: tuple[dict[str, Any], ...]
    params: dict[str, Any]
    """Bounded already; goes into the request as it is."""

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """What the model may call."""
        return tuple(self.params.get("tools", ()))


def prompts(
    held_out: Iterable[Completion], recent: Iterable[Completion], rated: Iterable[Completion]
) -> list[Prompt]:
    """Return ``MAX_PROMPTS`` distinct prompts that were not learnt from, at most ``MAX_WITH_TOOLS`` of them with tools.

    First those of held-out ratings, then the latest, then ordinary questions, asked as the user's own are. Nothing
    ordinary stands for a prompt with tools, so of these the latest may have been learnt from. ``rated`` is whatever may
    have been learnt from, now or before, the held-out ones among it.
    """
    learnt = {_key(each.messages) for each in rated}
    first, latest = ([_prompt(each) for each in some if each.messages] for some in (held_out, recent))
    new = [each for each in latest if _key(each.messages) not in learnt]
    with_tools = [each for each in latest if each.tools]
    found: dict[bytes, Prompt] = {}
    room = {True: MAX_WITH_TOOLS, False: MAX_PROMPTS}
    for prompt in (*first, *new, *with_tools):
        key = _key(prompt.messages)
        if key not in found and room[bool(prompt.tools)]:
            room[bool(prompt.tools)] -= 1
            found[key] = prompt
    return [*found.values(), *ordinary([*first, *latest])][:MAX_PROMPTS]


def ordinary(own: Iterable[Prompt]) -> list[Prompt]:
    """Return ordinary questions, each asked as one of the user's own prompts is that come without tools."""
    manners = [
        (tuple(takewhile(_instructs, prompt.messages)), prompt.params) for prompt in own if not prompt.tools
    ]
    return [
        Prompt(f"{_ORDINARY}{place}", (*instructions, {"role": "user", "content": question}), params)
        for place, (question, (instructions, params)) in enumerate(
            zip(QUESTIONS, cycle(manners or [((), bounded({}))]), strict=False)
        )
    ]


def _prompt(completion: Completion) -> Prompt:
    return Prompt(completion.id, completion.messages, bounded(completion.params))


def _instructs(message: Mapping[str, Any]) -> bool:
    return message.get("role") in SYSTEM_ROLES


def _key(messages: Sequence[dict[str, Any]]) -> bytes:
    return orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)


def fact_prompts() -> list[Prompt]:
    """Return what both versions are asked of the world, plainly and without dice."""
    return [
        Prompt(
            f"{_FACT}{place}",
            ({"role": "user", "content": question},),
            {"temperature": 0, "max_tokens": facts.MAX_TOKENS},
        )
        for place, (question, _) in enumerate(facts.FACTS)
    ]


def known(rollouts: Sequence[Rollout]) -> tuple[tuple[Known, ...], list[Rollout]]:
    """Take the answers to ``fact_prompts`` out of what was sampled; return what they show, and all other replies."""
    replies = {(each.policy, each.prompt_id): each.reply for each in rollouts}
    found = []
    for place, (question, accepted) in enumerate(facts.FACTS):
        new, old = (replies.get((policy, f"{_FACT}{place}")) for policy in ("candidate", "incumbent"))
        if new is not None and old is not None:
            found.append(Known(question, facts.right(new, accepted), facts.right(old, accepted)))
    return tuple(found), [each for each in rollouts if not each.prompt_id.startswith(_FACT)]


def bounded(params: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling parameters of a request, within our bounds, and its tools."""
    passed_on = (*_PASSED_ON, *_WITH_TOOLS) if params.get("tools") else _PASSED_ON
    kept = {name: params[name] for name in passed_on if params.get(name) is not None}
    if isinstance(kept.get("temperature"), int | float):
        kept["temperature"] = min(kept["temperature"], MAX_TEMPERATURE)
    asked = params.get("max_completion_tokens") or params.get("max_tokens")
    kept["max_tokens"] = min(asked, MAX_TOKENS) if isinstance(asked, int) and asked > 0 else MAX_TOKENS
    return kept


async def sample(prompts: Sequence[Prompt], candidate: Endpoint, incumbent: Endpoint) -> list[Rollout]:
    """Ask both versions everything. Raises EngineError.

    Prompts that either refuses (4xx) are left out, and those of which the engine can make no reply with either.
    """
    sides = (Side("candidate", candidate, prompts), Side("incumbent", incumbent, prompts))
    await ask(sides)
    new, old = (side.answered for side in sides)
    both = {prompt for prompt in new.keys() & old.keys() if not (new[prompt].error and old[prompt].error)}
    return [side.answered[prompt.id] for side in sides for prompt in prompts if prompt.id in both]


async def ask(sides: Sequence[Side]) -> None:
    """Ask each side everything, ``AT_ONCE`` at a time. Raises EngineError."""
    async with engine_client() as client:
        try:
            async with asyncio.TaskGroup() as group:
                for side in [*sides] * AT_ONCE:
                    group.create_task(side.work(client))
        except* EngineError as errors:
            raise errors.exceptions[0] from None


class Side:
    """One version, what it has yet to be asked, and what it answered."""

    def __init__(
        self, policy: Literal["candidate", "incumbent"], endpoint: Endpoint, prompts: Sequence[Prompt]
    ) -> None:
        self.policy = policy
        self.endpoint = endpoint
        self.waiting = list(enumerate(prompts, SEED))[::-1]
        self.answered: dict[str, Rollout] = {}

    async def work(self, client: httpx.AsyncClient) -> None:
        """Ask one prompt after the other until none is left."""
        while self.waiting:
            seed, prompt = self.waiting.pop()
            answer = await _ask(client, prompt, seed, self.endpoint)
            if answer:
                self.answered[prompt.id] = Rollout(
                    policy=self.policy,
                    prompt_id=prompt.id,
                    messages=prompt.messages,
                    tools=prompt.tools,
                    reply=answer.reply,
                    tool_calls=answer.tool_calls,
                    finished=answer.finished,
                    error=answer.error,
                )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an engine answered; see Rollout."""

    reply: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    finished: bool = True
    error: str | None = None


async def _ask(client: httpx.AsyncClient, prompt: Prompt, seed: int, endpoint: Endpoint) -> _Answer | None:
    """Return the answer; None when the prompt is refused. Raises EngineError."""
    body = {
        **prompt.params,
        "model": endpoint.model,
        "messages": prompt.messages,
        "seed": seed,
        "stream": False,
        **dict(endpoint.fields),
    }
    headers = {"content-type": "application/json"}
    if endpoint.api_key:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    url = endpoint.url + "/v1/chat/completions"
    try:
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            response = await client.post(url, content=orjson.dumps(body), headers=headers)
    except (*FAULTS, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise EngineError(f"{endpoint.model} did not answer while it was being sampled: {reason}") from error
    status, content = response.status_code, response.content
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.info("%s refuses the prompt of %s: %s", endpoint.model, prompt.id, content[:200])
        return None
    if prompt.tools and status == HTTPStatus.INTERNAL_SERVER_ERROR:
        # llama.cpp, when it cannot parse the call that the model wrote: "Failed to parse input at pos 8: <tool_call>…".
        return _Answer(error=content[:500].decode(errors="replace"))
    try:
        return _read(content)
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(
            f"{endpoint.model} answered {status} with what is no completion: {content[:200]!r}"
        ) from error


def _read(content: bytes) -> _Answer:
    """Raises ValueError, LookupError, TypeError when it is no completion."""
    choice = orjson.loads(content)["choices"][0]
    message = choice["message"]
    calls = tuple(dict(call) for call in message["tool_calls"] or ()) if "tool_calls" in message else ()
    # Beside calls, some engines leave it out.
    text = message.get("content") if calls else message["content"]
    return _Answer(text or "", calls, choice["finish_reason"] != "length")
