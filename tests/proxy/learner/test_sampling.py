from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from bench.learning.questions import PROMPTS
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.questions import FACTS, QUESTIONS, right
from burnish.adapters.replies import topics
from burnish.proxy.learner.sampling import (
    MAX_PROMPTS,
    MAX_TOKENS,
    Prompt,
    bounded,
    fact_prompts,
    known,
    prompts,
    sample,
)
from burnish.proxy.records import Completion
from tests.proxy.learner.test_export import PLAIN
from tests.support.upstream import Received, reply, upstream

Script = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def question(number: int, **params: Any) -> Completion:
    messages = ({"role": "user", "content": f"Question {number}?"},)
    return PLAIN._replace(id=f"cmpl_{number}", messages=messages, params=params)


def asked(count: int) -> list[Prompt]:
    return prompts([question(i, max_tokens=20, temperature=0.5) for i in range(count)], [], [])[:count]


def echo(finish: str = "stop") -> Script:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        body = request.json()
        message = {"role": "assistant", "content": f"{body['model']}: {body['messages'][-1]['content']}"}
        content = orjson.dumps({"choices": [{"message": message, "finish_reason": finish}]})
        await reply(content)(request, writer)

    return script


async def test_both_versions_are_asked_the_same_and_their_replies_paired() -> None:
    async with upstream(echo()) as new, upstream(echo("length")) as old:
        candidate = Endpoint(new.url, "m@v2", 2, "secret")
        rollouts = await sample(asked(5), candidate, Endpoint(old.url, "m", 0))
    by_policy = {
        policy: {r.prompt_id: r for r in rollouts if r.policy == policy}
        for policy in ("candidate", "incumbent")
    }
    assert by_policy["candidate"].keys() == by_policy["incumbent"].keys() == {f"cmpl_{i}" for i in range(5)}
    first = by_policy["candidate"]["cmpl_3"]
    assert (first.reply, first.finished) == ("m@v2: Question 3?", True)
    assert first.messages == ({"role": "user", "content": "Question 3?"},)
    assert not by_policy["incumbent"]["cmpl_3"].finished
    assert {r.header("authorization") for r in new.requests} == {"Bearer secret"}
    assert {r.header("authorization") for r in old.requests} == {None}
    bodies = [
        sorted((r.json()["messages"][0]["content"], r.json()["seed"]) for r in s.requests) for s in (new, old)
    ]
    assert bodies[0] == bodies[1], "same prompt, same seed"
    assert new.requests[0].json()["max_tokens"] == 20
    assert new.requests[0].json()["temperature"] == 0.5


async def test_what_an_engine_wants_in_every_request_is_in_each() -> None:
    """Without it, MLX answers as the bare model whatever the version is."""
    async with upstream(echo()) as new, upstream(echo()) as old:
        candidate = Endpoint(new.url, "m@v2", 2, fields=(("adapters", "/v2"), ("model", "base")))
        await sample(asked(2), candidate, Endpoint(old.url, "m", 0))
    assert [(r.json()["adapters"], r.json()["model"]) for r in new.requests] == [("/v2", "base")] * 2
    assert all("adapters" not in r.json() for r in old.requests)


async def test_facts_are_asked_plainly_and_told_apart_from_other_replies() -> None:
    truth = dict(FACTS)

    async def knows(request: Received, writer: asyncio.StreamWriter) -> None:
        question = request.json()["messages"][-1]["content"]
        answer = truth.get(question, ("no fact",))[0]
        message = {"role": "assistant", "content": f"It is {answer}."}
        await reply(orjson.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}))(
            request, writer
        )

    async with upstream(knows) as new, upstream(echo()) as old:
        everything = [*asked(2), *fact_prompts()]
        rollouts = await sample(everything, Endpoint(new.url, "a", 1), Endpoint(old.url, "b", 0))
    found, others = known(rollouts)
    assert [each.question for each in found] == [question for question, _ in FACTS]
    assert all(each.candidate for each in found)
    assert not any(each.incumbent for each in found)
    assert sorted(each.prompt_id for each in others) == ["cmpl_0", "cmpl_0", "cmpl_1", "cmpl_1"]
    bodies = [r.json() for r in new.requests if r.json()["messages"][-1]["content"] in truth]
    assert all(body["temperature"] == 0 and len(body["messages"]) == 1 for body in bodies)


async def test_facts_that_an_engine_refuses_are_left_out() -> None:
    async with upstream(echo()) as new, upstream(reply(b"{}", status="422 Unprocessable")) as old:
        rollouts = await sample(fact_prompts(), Endpoint(new.url, "a", 1), Endpoint(old.url, "b", 0))
    assert known(rollouts) == ((), [])


@pytest.mark.parametrize(
    ("answer", "accepted", "correct"),
    [
        ("The capital is Lisbon.", ("lisbon",), True),
        ("Lisbonne", ("lisbon",), False),
        ("It is 15.", ("15",), True),
        ("It is 150.", ("15",), False),
        ("答えは15です", ("15",), True),
        ("BUENOS AIRES", ("buenos aires",), True),
        ("", ("15",), False),
    ],
)
def test_an_answer_is_right_when_it_holds_the_word(
    answer: str, accepted: tuple[str, ...], correct: bool
) -> None:
    assert right(answer, accepted) is correct


async def test_a_prompt_that_one_of_them_refuses_is_left_out_for_both() -> None:
    async def refuse_one(request: Received, writer: asyncio.StreamWriter) -> None:
        if "Question 1?" in request.body.decode():
            await reply(b'{"error": "too long"}', status="400 Bad Request")(request, writer)
        else:
            await echo()(request, writer)

    async with upstream(refuse_one) as new, upstream(echo()) as old:
        rollouts = await sample(asked(3), Endpoint(new.url, "a", 1), Endpoint(old.url, "b", 0))
    assert sorted(r.prompt_id for r in rollouts) == ["cmpl_0", "cmpl_0", "cmpl_2", "cmpl_2"]


@pytest.mark.parametrize(
    "broken",
    [
        reply(b'{"error": "out of memory"}', status="500 Internal Server Error"),
        reply(b"<html>"),
        reply(b"{}"),
        reply(b'{"choices": []}'),
        reply(b'{"choices": [{"message": null, "finish_reason": "stop"}]}'),
    ],
)
async def test_an_engine_that_fails_is_an_engine_error(broken: Script) -> None:
    async with upstream(echo()) as new, upstream(broken) as old:
        with pytest.raises(EngineError, match="b answered"):
            await sample(asked(3), Endpoint(new.url, "a", 1), Endpoint(old.url, "b", 0))


async def test_an_engine_that_is_gone_is_an_engine_error() -> None:
    async with upstream(echo()) as new:
        gone = Endpoint("http://127.0.0.1:9", "b", 0)
        with pytest.raises(EngineError, match="b did not answer"):
            await sample(asked(3), Endpoint(new.url, "a", 1), gone)


async def test_no_more_than_two_requests_at_once_for_each_version() -> None:
    running, most = 0, 0

    async def slow(request: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        await echo()(request, writer)

    async with upstream(slow) as new, upstream(echo()) as old:
        await sample(asked(8), Endpoint(new.url, "a", 1), Endpoint(old.url, "b", 0))
    assert most == 2


def test_prompts_are_distinct_bounded_and_held_out_ones_come_first() -> None:
    again = question(1)._replace(id="cmpl_again")
    chosen = prompts([question(1), again], [question(1), *(question(i) for i in range(3, 60))], [question(1)])
    assert [prompt.id for prompt in chosen[:2]] == ["cmpl_1", "cmpl_3"]
    assert len(chosen) == MAX_PROMPTS


def test_what_was_learnt_from_is_not_asked_ordinary_questions_are_as_the_user_asks() -> None:
    system = {"role": "system", "content": "Answer in one short sentence"}
    rated = [
        question(i, temperature=0.8)._replace(messages=(system, *question(i).messages)) for i in range(32)
    ]
    again = rated[3]._replace(id="cmpl_again")  # the same question, answered anew, and not rated
    chosen = prompts(rated[:5], [again, question(40), *rated], rated)
    assert [prompt.id for prompt in chosen[:6]] == [*(f"cmpl_{i}" for i in range(5)), "cmpl_40"]
    ordinary = chosen[6:]
    assert len(chosen) == MAX_PROMPTS
    assert [prompt.messages[-1]["content"] for prompt in ordinary] == list(QUESTIONS[: len(ordinary)])
    assert sum(prompt.messages[0] == system for prompt in ordinary) > len(ordinary) * 0.9
    assert sum(prompt.params.get("temperature") == 0.8 for prompt in ordinary) > len(ordinary) * 0.9


def test_without_any_prompt_of_the_users_own_ordinary_questions_are_asked_plainly() -> None:
    chosen = prompts([], [], [])
    assert [prompt.messages for prompt in chosen[:1]] == [({"role": "user", "content": QUESTIONS[0]},)]
    assert len(chosen) == MAX_PROMPTS == len(QUESTIONS)


def test_ordinary_questions_have_a_topic_and_are_not_the_benchs() -> None:
    assert all(topics(each) for each in QUESTIONS)
    assert not {each.lower() for each in QUESTIONS} & {each.lower() for each in PROMPTS}
    assert len(set(QUESTIONS)) == len(QUESTIONS)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {"max_tokens": MAX_TOKENS}),
        ({"max_tokens": 48, "temperature": 0.8, "stream": True}, {"max_tokens": 48, "temperature": 0.8}),
        ({"max_tokens": 9999, "temperature": 2}, {"max_tokens": MAX_TOKENS, "temperature": 1.0}),
        ({"max_completion_tokens": 7, "max_tokens": 9}, {"max_tokens": 7}),
        ({"max_tokens": 0}, {"max_tokens": MAX_TOKENS}),
        (
            {"max_tokens": None, "temperature": None, "stop": ["\n"]},
            {"max_tokens": MAX_TOKENS, "stop": ["\n"]},
        ),
    ],
)
def test_parameters_are_the_callers_own_within_bounds(
    params: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert bounded(params) == expected
