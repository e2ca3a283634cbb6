"""Prompts with tools, asked of both versions as the client sent them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.gate import judge
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.proxy.learner.evidence import evidence, rated_replies
from burnish.proxy.learner.sampling import MAX_PROMPTS, MAX_WITH_TOOLS, Prompt, prompts, sample
from burnish.proxy.records import Completion, RatedCompletion
from burnish.training.job import Evaluation, JobDirectory, Rollout
from tests.proxy.learner.conftest import Open
from tests.proxy.learner.test_export import PLAIN
from tests.support.upstream import Received, reply, upstream

Script = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]

TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "required": ["city"]}},
    }
]
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
BAD_CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city'}}
# What llama.cpp says of a call that it cannot parse, and vLLM where it was started without a parser.
UNPARSED = (
    b'{"error":{"code":500,"message":"Failed to parse input at pos 12: </tool_call>","type":"server_error"}}'
)
NO_PARSER = (
    b'{"object":"error","message":"\\"auto\\" tool choice requires --enable-auto-tool-choice and '
    b'--tool-call-parser to be set","type":"BadRequestError","param":null,"code":400}'
)
MEASURED = Evaluation(
    run_id="run_1",
    held_out=(),
    kl_per_token=0.1,
    incumbent_kl_per_token=0.0,
    general_loss=3.0,
    general_loss_reference=3.0,
    weight_change=0.001,
    seconds=1.0,
    peak_rss_bytes=1,
)


def question(number: int, **params: Any) -> Completion:
    messages = ({"role": "user", "content": f"Question {number}?"},)
    return PLAIN._replace(id=f"cmpl_{number:02d}", messages=messages, params=params)


def asked(count: int, **params: Any) -> list[Prompt]:
    return prompts([question(i, tools=TOOLS, **params) for i in range(count)], [], [])[:count]


def answers(message: dict[str, Any], finish: str = "tool_calls") -> Script:
    """Answer with this message where there are tools, and else in text."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        given = message if request.json().get("tools") else {"content": "Just text."}
        choice = {"message": {"role": "assistant"} | given, "finish_reason": finish}
        await reply(orjson.dumps({"choices": [choice]}))(request, writer)

    return script


async def sampled(new: Script, old: Script, asking: list[Prompt]) -> dict[str, list[Rollout]]:
    async with upstream(new) as candidate, upstream(old) as incumbent:
        rollouts = await sample(asking, Endpoint(candidate.url, "a", 1), Endpoint(incumbent.url, "b", 0))
    return {policy: [r for r in rollouts if r.policy == policy] for policy in ("candidate", "incumbent")}


CALLS = answers({"content": None, "tool_calls": [CALL]})


def test_a_quarter_of_the_prompts_may_come_with_tools() -> None:
    mixed = [question(i, tools=TOOLS if i % 2 else None) for i in range(90)]
    chosen = prompts([], mixed, [])
    assert [bool(prompt.tools) for prompt in chosen].count(True) == MAX_WITH_TOOLS == MAX_PROMPTS // 4
    assert len(chosen) == MAX_PROMPTS
    assert [prompt.id for prompt in chosen[:3]] == ["cmpl_00", "cmpl_01", "cmpl_02"]
    assert [bool(prompt.tools) for prompt in asked(40)].count(True) == MAX_WITH_TOOLS


def test_prompts_with_tools_are_asked_though_they_were_learnt_from_the_others_first() -> None:
    rated = [question(i, tools=TOOLS) for i in range(20, 40)]
    chosen = prompts([], [*rated, question(1, tools=TOOLS)], rated)
    with_tools = [prompt.id for prompt in chosen if prompt.tools]
    assert with_tools == ["cmpl_01", *(f"cmpl_{i}" for i in range(20, 20 + MAX_WITH_TOOLS - 1))]
    # With tools at hand the user's instructions are an agent's: ordinary questions come without.
    assert all(len(prompt.messages) == 1 for prompt in chosen if not prompt.tools)


async def test_tools_are_sent_as_the_client_sent_them_and_calls_come_back() -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    asking = (
        asked(1, tool_choice=choice, parallel_tool_calls=False, temperature=0.5)
        + prompts([question(7, tool_choice="auto", tools=[])], [], [])[:1]
    )
    async with upstream(CALLS) as new, upstream(CALLS) as old:
        rollouts = await sample(asking, Endpoint(new.url, "a", 1), Endpoint(old.url, "b", 0))
    bodies = {body["messages"][0]["content"]: body for body in (r.json() for r in new.requests)}
    with_tools, without = bodies["Question 0?"], bodies["Question 7?"]
    assert (with_tools["tools"], with_tools["tool_choice"]) == (TOOLS, choice)
    assert with_tools["parallel_tool_calls"] is False
    assert not without.keys() & {"tools", "tool_choice", "parallel_tool_calls"}
    found = {(r.policy, r.prompt_id): r for r in rollouts}
    called = found["candidate", "cmpl_00"]
    assert (called.reply, called.tool_calls, called.tools) == ("", (CALL,), tuple(TOOLS))
    assert called.finished
    assert called.called
    assert found["incumbent", "cmpl_07"].reply == "Just text."
    assert not found["incumbent", "cmpl_07"].called


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [CALL]},
        {"content": "Let me see.", "tool_calls": [CALL]},
        {"content": "", "tool_calls": [CALL]},
    ],
)
async def test_text_beside_calls_may_be_there_or_not(message: dict[str, Any]) -> None:
    found = await sampled(answers(message), CALLS, asked(1))
    assert found["candidate"][0].reply == (message.get("content") or "")
    assert found["candidate"][0].tool_calls == (CALL,)


@pytest.mark.parametrize("calls", [None, []])
async def test_an_answer_without_calls_is_a_text(calls: list[Any] | None) -> None:
    found = await sampled(answers({"content": "Warm.", "tool_calls": calls}, "stop"), CALLS, asked(1))
    assert (found["candidate"][0].reply, found["candidate"][0].tool_calls) == ("Warm.", ())


async def test_an_engine_that_refuses_tools_is_asked_the_rest() -> None:
    async def refuses(request: Received, writer: asyncio.StreamWriter) -> None:
        answer = reply(NO_PARSER, status="400 Bad Request") if request.json().get("tools") else CALLS
        await answer(request, writer)

    asking = asked(3) + prompts([question(9)], [], [])[:1]
    found = await sampled(refuses, CALLS, asking)
    assert [[r.prompt_id for r in side] for side in found.values()] == [["cmpl_09"], ["cmpl_09"]]


async def test_what_the_engine_can_make_no_answer_of_is_a_broken_call() -> None:
    unparsed = reply(UNPARSED, status="500 Internal Server Error")
    found = await sampled(unparsed, CALLS, asked(2))
    assert [r.called for r in found["candidate"]] == [True, True]
    assert "Failed to parse input at pos 12" in (found["candidate"][0].error or "")
    assert [r.error for r in found["incumbent"]] == [None, None]


async def test_where_it_can_make_none_of_either_the_prompt_says_nothing() -> None:
    unparsed = reply(UNPARSED, status="500 Internal Server Error")
    assert await sampled(unparsed, unparsed, asked(2)) == {"candidate": [], "incumbent": []}


@pytest.mark.parametrize(
    "broken",
    [
        reply(b"busy", status="503 Service Unavailable"),
        answers({"content": None, "tool_calls": "weather"}),
        answers({"content": None, "tool_calls": [7]}),
        answers({}),
    ],
)
async def test_an_engine_that_fails_is_an_engine_error_with_tools_too(broken: Script) -> None:
    with pytest.raises(EngineError, match="a answered"):
        await sampled(broken, CALLS, asked(1))


async def test_what_was_sampled_is_judged() -> None:
    """From the engines' answers to the verdict: one version breaks every call, the other none."""
    found = await sampled(answers({"content": None, "tool_calls": [BAD_CALL]}), CALLS, asked(12))
    verdict = judge(evidence(MEASURED, [*found["candidate"], *found["incumbent"]], (), ()))
    assert verdict.outcome == "rejected"
    assert "12 of 12 (0 before)" in verdict.reason
    assert '→ weather({"city)' in [each.after for each in verdict.examples]
    assert '→ weather(city="Paris")' in [each.before for each in verdict.examples]


async def test_the_embedded_engine_takes_tools(open_world: Open) -> None:
    """The small model's chat template does not tell it of tools, so it answers in text, and that is no broken call."""
    world = await open_world(model=ensure_small_model())
    with world.swap.route.lease() as live:
        rollouts = await sample(asked(1, max_tokens=8, temperature=0), live.endpoint, live.endpoint)
    assert [rollout.policy for rollout in rollouts] == ["candidate", "incumbent"]
    assert all(rollout.reply and not rollout.error for rollout in rollouts)
    assert not any(rollout.called for rollout in rollouts)


async def test_calls_survive_the_job_directory(tmp_path: Any) -> None:
    found = await sampled(CALLS, reply(UNPARSED, status="500 Internal Server Error"), asked(2))
    rollouts = [*found["candidate"], *found["incumbent"]]
    job = JobDirectory(tmp_path)
    job.write_rollouts(rollouts)
    assert job.rollouts() == rollouts


def test_a_preference_model_is_not_learnt_from_rated_calls() -> None:
    def rated(message: dict[str, Any]) -> RatedCompletion:
        return RatedCompletion(
            completion=PLAIN._replace(reply=message),
            reward=1.0,
            weight=1.0,
            feedback_ids=("f",),
            comment=None,
            correction=None,
        )

    text = {"role": "assistant", "content": "Warm."}
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert [each.text for each in rated_replies([rated(text), rated(call)])] == ["Warm."]
