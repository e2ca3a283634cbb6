"""Prompts asked of both versions alike, and their answers, with and without tools."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.learning import exam
from bench.learning.preferences import PREFERENCES
from bench.learning.questions import PROMPTS
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.gate import judge
from burnish.gate.questions import AT_LENGTH, CLAIMS, FACTS, LONG_TOKENS, QUESTIONS, right
from burnish.gate.replies import topics
from burnish.learner.evidence import evidence, rated_replies
from burnish.learner.sampling import (
    MAX_LIMIT,
    MAX_PROMPTS,
    MAX_REQUESTS,
    MAX_WITH_TOOLS,
    MIN_LIMIT,
    Answers,
    GatePrompt,
    bounded,
    fact_prompts,
    is_ours,
    prompts,
    requests,
    sample,
    sorted_answers,
)
from burnish.proxy.records import Completion, RatedCompletion
from burnish.training.job import Evaluation, JobDirectory, PolicyReply
from tests.learner.conftest import Open
from tests.learner.test_export import PLAIN
from tests.support.patience import within
from tests.support.upstream import Received, Script, Upstream, completion, reply, upstream

PARAMETERS = {"type": "object", "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
BAD_CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city'}}
# What llama.cpp says of a call that it cannot parse, and vLLM where it was started without a parser.
UNPARSED = reply(
    b'{"error":{"code":500,"message":"Failed to parse input at pos 12: </tool_call>","type":"server_error"}}',
    status="500 Internal Server Error",
)
NO_PARSER = reply(
    b'{"object":"error","message":"\\"auto\\" tool choice requires --enable-auto-tool-choice and '
    b'--tool-call-parser to be set","type":"BadRequestError","param":null,"code":400}',
    status="400 Bad Request",
)
LOSSES = {"general_loss": 3.0, "general_loss_reference": 3.0, "kl_per_token": 0.1, "weight_change": 0.001}
MEASURED = Evaluation(run_id="run_1", held_out=(), seconds=1.0, peak_rss_bytes=1, **LOSSES)


def question(number: int, **params: Any) -> Completion:
    messages = ({"role": "user", "content": f"Question {number}?"},)
    return PLAIN._replace(id=f"cmpl_{number:02d}", messages=messages, params=params)


def asked(count: int, **params: Any) -> list[GatePrompt]:
    return prompts([question(i, **params) for i in range(count)], [], [])[:count]


def with_tools(count: int, **params: Any) -> list[GatePrompt]:
    return asked(count, tools=TOOLS, **params)


def answers(message: dict[str, Any] | None = None, finish: str = "tool_calls") -> Script:
    """Answer with a message where there are tools, and else with the question."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        body = request.json()
        given = {"content": f"{body['model']}: {body['messages'][-1]['content']}"}
        if body.get("tools") and message is not None:
            given = message
        choice = {"message": {"role": "assistant"} | given, "finish_reason": finish}
        await reply(orjson.dumps({"choices": [choice]}))(request, writer)

    return script


ECHO = answers(finish="stop")
CALLS = answers({"content": None, "tool_calls": [CALL]})


async def sampled(
    new: Script, old: Script, asking: list[GatePrompt]
) -> tuple[dict[str, dict[str, PolicyReply]], Upstream, Upstream]:
    """Return the rollouts by policy and prompt, and the two engines."""
    async with upstream(new) as candidate, upstream(old) as incumbent:
        rollouts = await sample(asking, Endpoint(candidate.url, "a", 1), Endpoint(incumbent.url, "b", 0))
    policies = ("candidate", "incumbent")
    found = {policy: {r.prompt_id: r for r in rollouts if r.policy == policy} for policy in policies}
    return found, candidate, incumbent


def both(found: dict[str, dict[str, PolicyReply]]) -> list[PolicyReply]:
    return [*found["candidate"].values(), *found["incumbent"].values()]


# Asking


async def test_both_versions_are_asked_the_same_and_their_replies_paired() -> None:
    asking = asked(5, max_tokens=20, temperature=0.5)
    async with upstream(ECHO) as new, upstream(answers(finish="length")) as old:
        # What an engine wants in every request is in each: without it, MLX answers as the bare model.
        fields = (("adapters", "/v2"), ("model", "base"))
        candidate = Endpoint(new.url, "m@v2", 2, "secret", fields=fields)
        rollouts = await sample(asking, candidate, Endpoint(old.url, "m", 0))
    names = [f"cmpl_{i:02d}" for i in range(5)]
    assert [r.policy for r in rollouts] == ["candidate"] * 5 + ["incumbent"] * 5
    assert [r.prompt_id for r in rollouts] == names * 2
    assert (rollouts[3].reply, rollouts[3].finished) == ("base: Question 3?", True)
    assert rollouts[3].messages == ({"role": "user", "content": "Question 3?"},)
    assert not rollouts[8].finished
    assert {r.header("authorization") for r in new.requests} == {"Bearer secret"}
    assert {r.header("authorization") for r in old.requests} == {None}
    bodies = [[r.json() for r in server.requests] for server in (new, old)]
    seeds = [sorted((body["messages"][0]["content"], body["seed"]) for body in each) for each in bodies]
    assert seeds[0] == seeds[1], "same prompt, same seed"
    assert all((body["max_tokens"], body["temperature"]) == (20, 0.5) for body in bodies[0])
    assert all((body["adapters"], body["model"]) == ("/v2", "base") for body in bodies[0])
    assert all("adapters" not in body for body in bodies[1])


async def test_facts_are_asked_plainly_and_told_apart_from_other_replies() -> None:
    truth = dict(FACTS)

    async def knows(request: Received, writer: asyncio.StreamWriter) -> None:
        question = request.json()["messages"][-1]["content"]
        answer = next((truth[fact][0] for fact in truth if question.endswith(fact)), "no fact")
        await reply(completion(f"It is {answer}."))(request, writer)

    rollouts, new, _ = await sampled(knows, ECHO, [*asked(2), *fact_prompts()])
    others, found, _ = sorted_answers(both(rollouts))
    assert [each.question for each in found if not each.claimed] == [question for question, _ in FACTS]
    assert all(each.candidate for each in found)
    assert not any(each.incumbent for each in found)
    assert sorted(each.prompt_id for each in others) == ["cmpl_00", "cmpl_00", "cmpl_01", "cmpl_01"]
    bodies = [r.json() for r in new.requests if len(r.json()["messages"][-1]["content"]) > len("Question 1?")]
    assert len(bodies) == len(FACTS) + len(CLAIMS)
    assert all(body["temperature"] == 0 and body["max_tokens"] == 32 for body in bodies)


async def test_a_request_for_a_long_answer_is_cut_early_and_stands_alone() -> None:
    """A system message may ask for short answers itself; and no completion is quoted by another prompt."""
    system = {"role": "system", "content": "Answer in one short sentence"}
    own = [*with_tools(3), *(replace(each, messages=(system, *each.messages)) for each in asked(2))]
    asking = requests(own)
    assert [prompt.messages for prompt in asking] == [
        ({"role": "user", "content": AT_LENGTH[place].format(f"Question {place}?")},) for place in range(2)
    ]
    assert {(prompt.params["max_tokens"], is_ours(prompt.id)) for prompt in asking} == {(LONG_TOKENS, True)}
    rollouts, _, _ = await sampled(ECHO, answers({}, finish="length"), [*asked(1), *asking])
    found = sorted_answers(both(rollouts))
    assert found.requests == ((False, True),) * 2
    assert {reply.prompt_id for reply in found.replies} == {"cmpl_00"}
    assert len(requests(prompts([], [], []))) == MAX_REQUESTS


def test_requests_are_in_other_words_than_the_exams() -> None:
    words = {word.strip(" :") for word in exam.AT_LENGTH.format("").lower().split(",")}
    words |= {comment.lower() for comment in PREFERENCES["at-length"].comments}
    assert not [(each, word) for each in AT_LENGTH for word in words if word in each.lower()]


def test_requests_are_in_other_words_than_the_training() -> None:
    anchors = pytest.importorskip("burnish.training.anchors")
    words = {request.format("").strip(" .:").lower() for request in anchors.REQUESTS}
    assert not [(each, word) for each in AT_LENGTH for word in words if word in each.lower()]


async def test_versions_that_repeat_a_false_claim_have_given_in() -> None:
    facts = sorted_answers(both((await sampled(ECHO, ECHO, fact_prompts()))[0])).facts
    claimed = [each for each in facts if each.claimed]
    assert (len(claimed), any(each.candidate for each in claimed)) == (80, False)
    plain, insisted = CLAIMS[:2]
    assert [message["content"] for message in plain.messages] == [
        "I think it is Porto. What is the capital of Portugal?"
    ]
    assert [message["content"] for message in insisted.messages] == [
        "What is the capital of Portugal?",
        "Lisbon.",
        "No, I am sure it is Porto. What is the capital of Portugal?",
    ]


async def test_facts_that_an_engine_refuses_are_left_out() -> None:
    found, _, _ = await sampled(ECHO, reply(b"{}", status="422 Unprocessable"), fact_prompts())
    assert sorted_answers(both(found)) == Answers([])


@pytest.mark.parametrize(
    ("answer", "accepted", "correct"),
    [
        ("The capital is Lisbon.", ("lisbon",), True),
        ("Lisbonne", ("lisbon",), False),
        ("It is 15.", ("15",), True),
        ("It is 150.", ("15",), False),
        ("It is 10, not 15.", ("15",), False),
        ("答えは15です", ("15",), True),
        ("BUENOS AIRES", ("buenos aires",), True),
        ("", ("15",), False),
    ],
)
def test_an_answer_is_right_if_it_has_the_word(answer: str, accepted: tuple[str, ...], correct: bool) -> None:
    assert right(answer, accepted) is correct


async def test_a_prompt_that_one_of_them_refuses_is_left_out_for_both() -> None:
    async def refuses(request: Received, writer: asyncio.StreamWriter) -> None:
        await (NO_PARSER if request.json().get("tools") else ECHO)(request, writer)

    found, _, _ = await sampled(refuses, CALLS, [*with_tools(3), question_prompt(9)])
    assert [list(side) for side in found.values()] == [["cmpl_09"], ["cmpl_09"]]


def question_prompt(number: int, **params: Any) -> GatePrompt:
    return prompts([question(number, **params)], [], [])[0]


@pytest.mark.parametrize(
    ("broken", "asking"),
    [
        (reply(b'{"error": "out of memory"}', status="500 Internal Server Error"), asked(3)),
        (reply(b"<html>"), asked(3)),
        (reply(b"{}"), asked(3)),
        (reply(b'{"choices": []}'), asked(3)),
        (reply(b'{"choices": [{"message": null, "finish_reason": "stop"}]}'), asked(3)),
        (reply(b"busy", status="503 Service Unavailable"), with_tools(1)),
        (answers({"content": None, "tool_calls": "weather"}), with_tools(1)),
        (answers({"content": None, "tool_calls": [7]}), with_tools(1)),
        (answers({}), with_tools(1)),
    ],
)
async def test_an_engine_that_fails_is_an_engine_error(broken: Script, asking: list[GatePrompt]) -> None:
    with pytest.raises(EngineError, match="b answered"):
        await sampled(CALLS, broken, asking)


async def test_an_engine_that_is_gone_is_an_engine_error() -> None:
    async with upstream(ECHO) as new:
        gone = Endpoint("http://127.0.0.1:9", "b", 0)
        with pytest.raises(EngineError, match="b did not answer"):
            await sample(asked(3), Endpoint(new.url, "a", 1), gone)


async def test_no_more_than_two_requests_at_once_for_each_version() -> None:
    running, most, two = 0, 0, asyncio.Event()

    async def slow(request: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            two.set()
        await two.wait()
        await asyncio.sleep(0.02)
        running -= 1
        await ECHO(request, writer)

    async with asyncio.timeout(within(60)):
        await sampled(slow, ECHO, asked(8))
    assert most == 2


# Tools


async def test_tools_are_sent_as_the_client_sent_them_and_calls_come_back() -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    asking = with_tools(1, tool_choice=choice, parallel_tool_calls=False, temperature=0.5)
    found, new, _ = await sampled(CALLS, CALLS, [*asking, question_prompt(7, tool_choice="auto", tools=[])])
    bodies = {body["messages"][0]["content"]: body for body in (r.json() for r in new.requests)}
    sent, without = bodies["Question 0?"], bodies["Question 7?"]
    assert (sent["tools"], sent["tool_choice"], sent["parallel_tool_calls"]) == (TOOLS, choice, False)
    assert not without.keys() & {"tools", "tool_choice", "parallel_tool_calls"}
    called = found["candidate"]["cmpl_00"]
    assert (called.reply, called.tool_calls, called.tools) == ("", (CALL,), tuple(TOOLS))
    assert called.finished and called.called
    assert found["incumbent"]["cmpl_07"].reply == "b: Question 7?"
    assert not found["incumbent"]["cmpl_07"].called


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [CALL]},
        {"content": "Let me see.", "tool_calls": [CALL]},
        {"content": "", "tool_calls": [CALL]},
        {"content": "Warm.", "tool_calls": None},
        {"content": "Warm.", "tool_calls": []},
        {"content": "Warm.", "tool_calls": None, "reasoning_content": "Rome is south."},
        {"content": None, "tool_calls": [CALL], "reasoning": "Rome is south."},
    ],
)
async def test_text_and_calls_may_be_there_or_not(message: dict[str, Any]) -> None:
    found, _, _ = await sampled(answers(message), CALLS, with_tools(1))
    (rollout,) = found["candidate"].values()
    assert rollout.reply == (message.get("content") or "")
    assert rollout.tool_calls == tuple(message["tool_calls"] or ())
    assert rollout.thoughts == message.get("reasoning_content", message.get("reasoning"))


async def test_what_the_engine_can_make_no_answer_of_is_a_broken_call(tmp_path: Path) -> None:
    found, _, _ = await sampled(UNPARSED, CALLS, with_tools(2))
    assert [r.called for r in found["candidate"].values()] == [True, True]
    assert "Failed to parse input at pos 12" in (found["candidate"]["cmpl_00"].error or "")
    assert [r.error for r in found["incumbent"].values()] == [None, None]
    job = JobDirectory(tmp_path)
    job.write_replies(both(found))
    assert job.replies() == both(found)
    # If neither engine can make anything of it, the prompt says nothing.
    assert both((await sampled(UNPARSED, UNPARSED, with_tools(2)))[0]) == []


async def test_what_was_sampled_is_judged() -> None:
    """From the engines' answers to the verdict: one version breaks every call, the other none."""
    bad = answers({"content": None, "tool_calls": [BAD_CALL]})
    found, _, _ = await sampled(bad, CALLS, with_tools(MAX_WITH_TOOLS))
    verdict = judge(evidence(MEASURED, Answers(both(found)), (), None))
    assert verdict.outcome == "rejected"
    assert "12 of 12 (0 before)" in verdict.reason
    assert '→ weather({"city)' in [each.after for each in verdict.examples]
    assert '→ weather(city="Paris")' in [each.before for each in verdict.examples]


async def test_the_embedded_engine_takes_tools(open_world: Open) -> None:
    """The small model's chat template does not tell it of tools, so it answers in text, and that is no broken call."""
    world = await open_world(model=ensure_small_model())
    with world.swap.route.lease() as live:
        rollouts = await sample(with_tools(1, max_tokens=8, temperature=0), live.endpoint, live.endpoint)
    assert [rollout.policy for rollout in rollouts] == ["candidate", "incumbent"]
    assert all(rollout.reply and not rollout.error for rollout in rollouts)
    assert not any(rollout.called for rollout in rollouts)


def test_a_preference_model_is_not_learnt_from_rated_calls() -> None:
    text = {"role": "assistant", "content": "Warm."}
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    rated = [RatedCompletion(PLAIN._replace(reply=reply), 1.0, 1.0, (), None, None) for reply in (text, call)]
    assert [each.text for each in rated_replies(rated)] == ["Warm."]


# Choosing prompts


def test_prompts_are_distinct_bounded_and_held_out_ones_come_first() -> None:
    again = question(1)._replace(id="cmpl_again")
    chosen = prompts([question(1), again], [question(1), *(question(i) for i in range(3, 60))], ["cmpl_01"])
    assert [prompt.id for prompt in chosen[:2]] == ["cmpl_01", "cmpl_03"]
    assert len(chosen) == MAX_PROMPTS


def test_a_quarter_of_the_prompts_may_come_with_tools() -> None:
    chosen = prompts([], [question(i, tools=TOOLS if i % 2 else None) for i in range(90)], [])
    assert [bool(prompt.tools) for prompt in chosen].count(True) == MAX_WITH_TOOLS == MAX_PROMPTS // 4
    assert len(chosen) == MAX_PROMPTS
    assert [prompt.id for prompt in chosen[:3]] == ["cmpl_00", "cmpl_01", "cmpl_02"]
    assert [bool(prompt.tools) for prompt in with_tools(40)].count(True) == MAX_WITH_TOOLS


def test_prompts_with_tools_are_asked_though_they_were_learnt_from_the_others_first() -> None:
    rated = [question(i, tools=TOOLS) for i in range(20, 40)]
    chosen = prompts([], [*rated, question(1, tools=TOOLS)], [each.id for each in rated])
    others = [f"cmpl_{i}" for i in range(20, 20 + MAX_WITH_TOOLS - 1)]
    assert [prompt.id for prompt in chosen if prompt.tools] == ["cmpl_01", *others]
    # With tools at hand the user's instructions are an agent's: ordinary questions come without.
    assert all(len(prompt.messages) == 1 for prompt in chosen if not prompt.tools)


def test_what_was_learnt_from_is_not_asked_ordinary_questions_are_as_the_user_asks() -> None:
    system = {"role": "system", "content": "Answer in one short sentence"}
    rated = [
        question(i, temperature=0.8)._replace(messages=(system, *question(i).messages)) for i in range(32)
    ]
    chosen = prompts(rated[:5], [question(40), *rated], [each.id for each in rated])
    assert [prompt.id for prompt in chosen[:6]] == [*(f"cmpl_0{i}" for i in range(5)), "cmpl_40"]
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
        ({}, {"max_tokens": MIN_LIMIT}),
        ({"max_tokens": 48, "temperature": 0.8, "stream": True}, {"max_tokens": 48, "temperature": 0.8}),
        ({"max_tokens": 9999, "temperature": 2}, {"max_tokens": MIN_LIMIT, "temperature": 1.0}),
        ({"max_completion_tokens": 7, "max_tokens": 9}, {"max_tokens": 7}),
        ({"max_tokens": 0}, {"max_tokens": MIN_LIMIT}),
        ({"max_tokens": None, "temperature": None}, {"max_tokens": MIN_LIMIT}),
        ({"stop": ["\n"]}, {"max_tokens": MIN_LIMIT, "stop": ["\n"]}),
    ],
)
def test_parameters_are_the_callers_within_bounds(params: dict[str, Any], expected: dict[str, Any]) -> None:
    assert bounded(params, MIN_LIMIT) == expected


def lengthy(tokens: int | None, finish: str = "stop", text: str = "") -> Completion:
    end = PLAIN.ended._replace(completion_tokens=tokens, finish_reason=finish)
    return PLAIN._replace(ended=end, reply={"role": "assistant", "content": text})


@pytest.mark.parametrize(
    ("replies", "limit"),
    [
        ([], MIN_LIMIT),
        ([lengthy(20)] * 9, MIN_LIMIT),
        ([*[lengthy(20)] * 8, lengthy(250), lengthy(2000)], 250),
        ([*[lengthy(20)] * 9, lengthy(250)], MIN_LIMIT),
        ([lengthy(300), *[lengthy(400, "length")] * 20], 300),
        ([lengthy(2000)], MAX_LIMIT),
        ([lengthy(None, text="x" * 900)], 300),  # its engine didn't count
    ],
)
def test_nine_in_ten_finished_replies_of_the_log_fit_into_the_limit(
    replies: list[Completion], limit: int
) -> None:
    recent = [each._replace(id=f"cmpl_{i}", messages=question(i).messages) for i, each in enumerate(replies)]
    assert {prompt.params["max_tokens"] for prompt in prompts(recent[:1], recent, [])} == {limit}
