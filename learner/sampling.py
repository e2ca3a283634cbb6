"""Samples replies of candidate and live version to the same prompts, from the engine that serves them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import cycle, takewhile
from typing import Any, Literal, NamedTuple

import httpx
import orjson

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.api import FAULTS, engine_client
from burnish.adapters.hosts.base import Endpoint
from burnish.gate import FactCheck, LongAnswer, questions
from burnish.gate.confidence import nine_in_ten
from burnish.gate.replies import last_question, text_of
from burnish.learner.asked import TEMPLATE
from burnish.proxy.messages import SYSTEM_ROLES
from burnish.proxy.records import Completion
from burnish.proxy.surfaces.ends import end_in, finished
from burnish.training.job import PolicyReply
from burnish.training.phases import Phases
from burnish.training.thoughts import FIELDS as THOUGHTS

logger = logging.getLogger(__name__)

# Two versions answer each: some 100 replies, two minutes on two busy cores. With 24 prompts, chance alone made four
# more faults; 48 halve that share (`python -m bench.gate_power`).
MAX_PROMPTS = 48
# Latest completions, searched for prompts that no version has learnt from.
RECENT = 96
# Prompts with tools are long, so they are a quarter at most (`python -m bench.gate_power` shows the effect).
MAX_WITH_TOOLS = 12
# All prompts without tools, if there are MAX_WITH_TOOLS with tools.
MAX_REQUESTS = MAX_PROMPTS - MAX_WITH_TOOLS
# Both versions are cut alike. Nine in ten of the log's finished replies aren't: of two that are cut, nobody knows
# which would have ended. More than the shortest limit is for long replies, such as the 250 tokens of a function.
MIN_LIMIT, MAX_LIMIT = 192, 512
"""Tokens of a reply at most, by the lengths in the log."""
# Of code; prose has four. For replies whose engine didn't count.
TOKEN_CHARACTERS = 3
# Above it even a sound model babbles, and the gate would judge chance.
MAX_TEMPERATURE = 1.0
# Requests at once for each version; users get the other slots of the engine.
AT_ONCE = 2
# For one reply of MAX_LIMIT tokens, on a busy machine.
REPLY_TIMEOUT_S = 300.0
SEED = 20_000
"""Seed of the first prompt; each next prompt adds one. Both versions get the same seed for a prompt."""
_FACT, _ORDINARY, _REQUEST = "fact_", "ordinary_", "request_"
"""Prefixes of prompt IDs that no completion has."""
_POLICIES: tuple[Literal["candidate", "incumbent"], ...] = ("candidate", "incumbent")

_PASSED_ON = (
    "temperature", "top_p", "top_k", "min_p", "stop", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "chat_template_kwargs",
)  # fmt: skip
_WITH_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
"""Sent unchanged, and only with tools: engines refuse the others without them."""


@dataclass(frozen=True, slots=True)
class GatePrompt:
    """Messages and parameters of one request to both versions."""

    id: str
    messages: tuple[dict[str, Any], ...]
    params: dict[str, Any]
    """Result of ``bounded``."""
    origin: str
    """The completion that it quotes; its own ID if it quotes none."""
    template: dict[str, Any] = field(default_factory=dict)
    """As of a Sample."""

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        return tuple(self.params.get("tools", ()))


def is_ours(prompt_id: str) -> bool:
    return prompt_id.startswith((_FACT, _ORDINARY, _REQUEST))


def prompts(
    held_out: Iterable[Completion], recent: Iterable[Completion], learnt_ids: Collection[str]
) -> list[GatePrompt]:
    """Return ``MAX_PROMPTS`` distinct prompts that were not learnt from, at most ``MAX_WITH_TOOLS`` of them with tools.

    First come those of held-out ratings, then the latest, then ordinary questions with the user's parameters. An
    ordinary question can't replace a prompt with tools, so the latest of these may have been learnt from.
    The completions are as the engine was asked (``as_asked``). ``learnt_ids``: those of the latest whose context a
    version may have learnt from; held-out ones are among them.
    """
    held_out, recent = [*held_out], [*recent]
    limit = reply_limit([*held_out, *recent])
    first, latest = (
        [
            GatePrompt(
                completion.id,
                completion.messages,
                bounded(completion.params, limit),
                completion.id,
                # A prompt of a text completion is asked in chat here.
                {} if completion.asked.surface == "completions" else completion.params.get(TEMPLATE, {}),
            )
            for completion in some
            if completion.messages
        ]
        for some in (held_out, recent)
    )
    new = [prompt for prompt in latest if prompt.id not in learnt_ids]
    with_tools = [prompt for prompt in latest if prompt.tools]
    by_key: dict[bytes, GatePrompt] = {}
    room = {True: MAX_WITH_TOOLS, False: MAX_PROMPTS}
    for prompt in (*first, *new, *with_tools):
        key = orjson.dumps(prompt.messages, option=orjson.OPT_SORT_KEYS)
        if key not in by_key and room[bool(prompt.tools)]:
            room[bool(prompt.tools)] -= 1
            by_key[key] = prompt
    return [*by_key.values(), *ordinary([*first, *latest])][:MAX_PROMPTS]


def reply_limit(completions: Iterable[Completion]) -> int:
    """Return the tokens that nine in ten finished replies have at most, between MIN_LIMIT and MAX_LIMIT."""
    usual = nine_in_ten(
        _tokens(completion) for completion in completions if finished(completion.ended.finish_reason)
    )
    return min(max(usual, MIN_LIMIT), MAX_LIMIT)


def _tokens(completion: Completion) -> int:
    end = completion.ended
    if end.completion_tokens is not None:
        return end.completion_tokens // end.choice_count
    return len(text_of(completion.reply or {})) // TOKEN_CHARACTERS


def ordinary(own: Iterable[GatePrompt]) -> list[GatePrompt]:
    """Return ordinary questions, with the system prompts and parameters of prompts in ``own`` without tools."""
    manners = [
        (
            tuple(takewhile(lambda message: message.get("role") in SYSTEM_ROLES, prompt.messages)),
            prompt.params,
            prompt.origin,
        )
        for prompt in own
        if not prompt.tools
    ]
    return [
        GatePrompt(
            f"{_ORDINARY}{place}",
            (*instructions, {"role": "user", "content": question}),
            params,
            origin or f"{_ORDINARY}{place}",
        )
        for place, (question, (instructions, params, origin)) in enumerate(
            zip(questions.QUESTIONS, cycle(manners or [((), bounded({}, MIN_LIMIT), "")]), strict=False)
        )
    ]


def requests(prompts: Sequence[GatePrompt]) -> list[GatePrompt]:
    """Return the questions of prompts without tools, each with a request of the moment for a long answer.

    They stand alone: a system message may ask for short answers itself. How often a fall is seen in so many:
    ``python -m bench.gate_power``.
    """
    asked = [prompt for prompt in prompts if not prompt.tools and last_question(prompt.messages)]
    return [
        GatePrompt(
            f"{_REQUEST}{place}",
            ({"role": "user", "content": wording.format(last_question(prompt.messages))},),
            {**prompt.params, "max_tokens": questions.LONG_TOKENS},
            f"{_REQUEST}{place}",
        )
        for place, (prompt, wording) in enumerate(
            zip(asked[:MAX_REQUESTS], cycle(questions.AT_LENGTH), strict=False)
        )
    ]


def fact_prompts() -> list[GatePrompt]:
    """Return the facts, as plain questions, then the false claims."""
    asked = [({"role": "user", "content": question},) for question, _ in questions.FACTS]
    return [
        GatePrompt(
            f"{_FACT}{place}",
            messages,
            {"temperature": 0, "max_tokens": questions.MAX_TOKENS},
            f"{_FACT}{place}",
        )
        for place, messages in enumerate([*asked, *(claim.messages for claim in questions.CLAIMS)])
    ]


class Answers(NamedTuple):
    """What both versions answered, by what it is for."""

    replies: list[PolicyReply]
    facts: tuple[FactCheck, ...] = ()
    requests: tuple[LongAnswer, ...] = ()


def sorted_answers(replies: Sequence[PolicyReply]) -> Answers:
    """Separate the answers to ``fact_prompts``, graded, and those to ``requests`` from the other replies."""
    by_policy = {(reply.policy, reply.prompt_id): reply for reply in replies}
    claims = [(claim.question, claim.accepted) for claim in questions.CLAIMS]
    facts, long_answers = [], []
    for place, (question, accepted) in enumerate([*questions.FACTS, *claims]):
        new, old = (by_policy.get((policy, f"{_FACT}{place}")) for policy in _POLICIES)
        if new and old:
            right = (questions.right(new.reply, accepted), questions.right(old.reply, accepted))
            facts.append(FactCheck(question, *right, claimed=place >= len(questions.FACTS)))
    for place in range(MAX_REQUESTS):
        new, old = (by_policy.get((policy, f"{_REQUEST}{place}")) for policy in _POLICIES)
        if new and old:
            # A model that has only thought so far shows no answer.
            long_answers.append(
                LongAnswer(*(bool(reply.reply) and not reply.finished for reply in (new, old)))
            )
    others = [reply for reply in replies if not reply.prompt_id.startswith((_FACT, _REQUEST))]
    return Answers(others, tuple(facts), tuple(long_answers))


def bounded(params: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the tools of a request, and its sampling parameters, with ``most`` tokens of a reply at most."""
    passed_on = (*_PASSED_ON, *_WITH_TOOLS) if params.get("tools") else _PASSED_ON
    settings = {name: params[name] for name in passed_on if params.get(name) is not None}
    if isinstance(settings.get("temperature"), int | float):
        settings["temperature"] = min(settings["temperature"], MAX_TEMPERATURE)
    limit = params.get("max_completion_tokens") or params.get("max_tokens")
    settings["max_tokens"] = min(limit, most) if isinstance(limit, int) and limit > 0 else most
    return settings


class AnswerCounter:
    """Counts the prompts that both versions are done with: questions about facts last, in a phase of their own."""

    def __init__(self, prompts: Sequence[GatePrompt], phases: Phases) -> None:
        facts = [prompt.id.startswith(_FACT) for prompt in prompts]
        self._totals = {True: sum(facts), False: len(facts) - sum(facts)}
        self._done = {True: 0, False: 0}
        self._half: set[str] = set()
        self._phases = phases
        phases.begin("sampling", self._totals[False])

    def count(self, prompt_id: str) -> None:
        if prompt_id not in self._half:
            self._half.add(prompt_id)
            return
        fact = prompt_id.startswith(_FACT)
        asking_facts = self._done[False] == self._totals[False]
        self._done[fact] += 1
        if fact == asking_facts:
            self._phases.advance()
        if not asking_facts and self._done[False] == self._totals[False]:
            self._phases.begin("facts", self._totals[True], self._done[True])


OnAnswer = Callable[[str], None]
"""Called with the ID of a prompt when a version has answered it, or refused it."""


def ignored(_: str) -> None:
    pass


async def sample(
    prompts: Sequence[GatePrompt], candidate: Endpoint, incumbent: Endpoint, on_answer: OnAnswer = ignored
) -> list[PolicyReply]:
    """Send all prompts to both versions. Raises EngineError.

    A prompt is left out if either version refuses it (4xx), or if both replies can't be parsed by the engine.
    """
    samplers = (
        Sampler("candidate", candidate, prompts, on_answer),
        Sampler("incumbent", incumbent, prompts, on_answer),
    )
    await ask(samplers)
    new, old = (sampler.replies for sampler in samplers)
    both = {prompt for prompt in new.keys() & old.keys() if not (new[prompt].error and old[prompt].error)}
    return [sampler.replies[prompt.id] for sampler in samplers for prompt in prompts if prompt.id in both]


async def ask(samplers: Sequence[Sampler]) -> None:
    """Send every sampler its prompts, ``AT_ONCE`` at a time. Raises EngineError."""
    async with engine_client() as client:
        try:
            async with asyncio.TaskGroup() as group:
                for sampler in [*samplers] * AT_ONCE:
                    group.create_task(sampler.work(client))
        except* EngineError as errors:
            raise errors.exceptions[0] from None


class Sampler:
    """One version, its waiting prompts and its replies."""

    def __init__(
        self,
        policy: Literal["candidate", "incumbent"],
        endpoint: Endpoint,
        prompts: Sequence[GatePrompt],
        on_answer: OnAnswer = ignored,
    ) -> None:
        self.policy = policy
        self.endpoint = endpoint
        self.queue = list(enumerate(prompts, SEED))[::-1]
        self.replies: dict[str, PolicyReply] = {}
        self._on_answer = on_answer

    async def work(self, client: httpx.AsyncClient) -> None:
        while self.queue:
            seed, prompt = self.queue.pop()
            if answer := await _ask(client, prompt, seed, self.endpoint):
                self.replies[prompt.id] = PolicyReply(
                    policy=self.policy,
                    version=self.endpoint.version,
                    prompt_id=prompt.id,
                    messages=prompt.messages,
                    tools=prompt.tools,
                    template=prompt.template,
                    **answer,
                )
            self._on_answer(prompt.id)


async def _ask(
    client: httpx.AsyncClient, prompt: GatePrompt, seed: int, endpoint: Endpoint
) -> dict[str, Any] | None:
    """Return the answer as fields of a PolicyReply; None if the prompt is refused. Raises EngineError."""
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
        raise EngineError(f"{endpoint.model} did not answer a sampling request: {reason}") from error
    status, content = response.status_code, response.content
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.info("%s refused the prompt of %s: %s", endpoint.model, prompt.id, content[:200])
        return None
    if prompt.tools and status == HTTPStatus.INTERNAL_SERVER_ERROR:
        # llama.cpp, when it cannot parse the call that the model wrote: "Failed to parse input at pos 8: <tool_call>…".
        return {"reply": "", "finished": True, "error": content[:500].decode(errors="replace")}
    try:
        return _read(content)
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(
            f"{endpoint.model} answered {status}, and not with a completion: {content[:200]!r}"
        ) from error


def _read(content: bytes) -> dict[str, Any]:
    """Raises ValueError, LookupError, TypeError if it isn't a completion."""
    choice = orjson.loads(content)["choices"][0]
    message = choice["message"]
    calls = tuple(dict(call) for call in message["tool_calls"] or ()) if "tool_calls" in message else ()
    # Some engines leave it out beside calls.
    text = message.get("content") if calls else message["content"]
    end = end_in(choice)
    if end.failure:
        raise ValueError(end.failure)
    thoughts = next((message[name] for name in THOUGHTS if isinstance(message.get(name), str)), None)
    return {"reply": text or "", "tool_calls": calls, "thoughts": thoughts, "finished": finished(end.reason)}
