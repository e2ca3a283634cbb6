"""Which conversation a request belongs to and which answer is meant, by what clients send alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.log import Log
from burnish.proxy.log.attribution import MOST_REPLIES
from burnish.proxy.log.capture import parsed
from burnish.proxy.records import Completion
from tests.proxy.log.exchanges import (
    Message,
    assistant,
    capture,
    exchange,
    opened,
    system,
    user,
)
from tests.proxy.log.test_intake import stored
from tests.support.records import changed
from tests.support.responses import message, response

LONG = "The capital of France is Paris, a city of two million people on the Seine."


async def conversation(log: Log, completion_id: str) -> str:
    return (await log.completion(completion_id)).conversation_id


async def test_turns_of_a_history_are_one_conversation_and_others_are_not(log: Log):
    talk = [system("s"), user("a"), assistant("one"), user("b"), assistant("two"), user("c")]
    turns = [capture(log, talk[: 2 * n], reply) for n, reply in enumerate(("one", "two", "three"), start=1)]
    title = capture(log, [system("write a title"), user("a")], "Title", session="same")
    assert len({await conversation(log, each) for each in turns}) == 1
    assert await conversation(log, title) != await conversation(log, turns[0])


@pytest.mark.parametrize("known", [True, False])
async def test_an_answer_is_looked_for_among_the_latest_of_a_context(log: Log, known: bool):
    first = capture(log, [user("a")], LONG)
    unknown = [assistant("said elsewhere"), user("b")] * (MOST_REPLIES - known)
    later = capture(log, [user("a"), assistant(LONG), user("b"), *unknown], "two")
    assert (await conversation(log, later) == await conversation(log, first)) is known


async def test_fakes_and_summaries_that_never_came_through_are_no_answers(log: Log):
    capture(log, [user("shot"), assistant("fake"), user("real?")], "real")
    with pytest.raises(NotFound, match="not in the log"):
        await log.resolve_history([user("shot"), assistant("fake")], "local")
    with pytest.raises(NotFound, match="no answer"):
        await log.resolve_history([user("hi")], "local")


async def test_a_compacted_history_is_known_by_a_telling_reply_only(log: Log):
    first = capture(log, [user("capital?")], LONG)
    other = capture(log, [user("fine?")], "OK.")
    after = capture(log, [user("summary of all"), assistant(LONG), user("go on")], "well")
    short = capture(log, [user("another summary"), assistant("OK."), user("go on")], "well")
    assert await conversation(log, after) == await conversation(log, first)
    assert await conversation(log, short) != await conversation(log, other)


async def test_another_callers_words_never_join_conversations(log: Log):
    first = capture(log, [system("1"), user("q")], LONG, caller="ann")
    second = capture(log, [system("2"), user("q"), assistant(LONG), user("more")], caller="bob")
    assert await conversation(log, first) != await conversation(log, second)


async def test_equal_answers_in_equal_contexts_are_told_apart_by_session_caller_and_time(log: Log):
    asked = [user("hi")]
    mine = capture(log, asked, "Hello!", session="s1", caller="ann")
    capture(log, asked, "Hello!", session="s2", caller="bob")
    bobs = capture(log, asked, "Hello!", session="s3", caller="bob")
    latest = capture(log, asked, "Hello!", caller="eve")
    history = [*asked, assistant("Hello!")]
    assert (await log.resolve_history(history, "bob", "s1")).id == mine
    assert (await log.resolve_history(history, "bob")).id == bobs
    assert (await log.resolve_history(history, "stranger")).id == latest


async def test_equal_answers_in_rewritten_contexts_are_told_apart_by_the_question(log: Log):
    capture(log, [system("10:00"), user("is it wet?")], "Yes.")
    meant = capture(log, [system("10:01"), user("is it cold?")], "Yes.")
    capture(log, [system("10:02"), user("is it dark?")], "Yes.")
    found = await log.resolve_history([system("10:03"), user("is it cold?"), assistant("Yes.")], "local")
    assert found.id == meant


async def test_when_nothing_chooses_the_candidates_are_listed(log: Log):
    one = capture(log, [user("is it wet?")], "Yes.", session="s1")
    other = capture(log, [user("is it cold?")], "Yes.", session="s2")
    history = [user("a summary"), assistant("Yes.")]
    with pytest.raises(Conflict) as caught:
        await log.resolve_history(history, "local")
    assert {each["completion_id"] for each in caught.value.details["candidates"]} == {one, other}
    assert (await log.resolve_history(history, "local", "s1")).id == one


async def test_the_same_said_twice_is_told_apart_by_all_before(log: Log):
    """The user goes back to where the same was said for the first time, and the client changes its system prompt."""
    on, done = user("go on"), assistant("OK.")
    first = capture(log, [system("1"), user("build it"), assistant("Begun, as you instruction."), on], "OK.")
    history = [user("build it"), assistant("Begun, as you instruction."), on, done]
    second = capture(log, [system("2"), *history, on], "OK.")
    assert (await log.resolve_history([system("3"), *history], "local")).id == first
    assert (await log.resolve_history([system("3"), *history, on, done], "local")).id == second
    with pytest.raises(Conflict) as caught:
        await log.resolve_history([system("3"), on, done], "local")
    assert {each["completion_id"] for each in caught.value.details["candidates"]} == {first, second}


async def test_a_short_answer_of_another_conversation_is_not_taken_for_this_one(log: Log):
    """An answer that never came through burnish reads like one that did."""
    other = capture(log, [user("is it wet?")], "Yes.")
    with pytest.raises(Conflict) as caught:
        await log.resolve_history([user("is it cold?"), assistant("Yes.")], "local")
    assert [each["completion_id"] for each in caught.value.details["candidates"]] == [other]
    with pytest.raises(NotFound, match="not in the log"):
        await log.resolve_history([system("s"), user("is it wet?"), assistant("Yes.")], "bob")


async def test_a_retry_joins_its_first_attempt(log: Log):
    first = capture(log, [user("hi")], chunks=(), outcome="failed", status=None)
    retry = capture(log, [user("hi")], retry=1)
    fresh = capture(log, [user("hi")])
    assert await conversation(log, retry) == await conversation(log, first)
    assert await conversation(log, fresh) != await conversation(log, first)


async def test_targets(log: Log):
    first = capture(log, [user("a")], "one", response_id="r1", caller="ann")
    second = capture(log, [user("b")], "two", caller="ann")
    failed: dict[str, Any] = {"chunks": (), "outcome": "failed", "status": None}
    capture(log, [user("d")], caller="ann", **failed)
    unanswered = capture(log, [user("b"), assistant("two"), user("more")], **failed)
    assert (await log.resolve(conversation_id=await conversation(log, unanswered))).id == second
    assert (await log.resolve(completion_id="r1")).id == first
    assert (await log.resolve(last_of="ann")).id == second


def in_parts(said: Message, **more: Any) -> Message:
    text = said["content"]
    return said | ({"content": [{"type": "text", "text": text, **more}]} if text else {})


def reindented(said: Message) -> Message:
    """A message whose calls have their arguments written with other white space."""
    calls = [
        call | {"function": function | {"arguments": json.dumps(json.loads(function["arguments"]), indent=2)}}
        for call in said.get("tool_calls", ())
        for function in [call["function"]]
    ]
    return said | ({"tool_calls": calls} if calls else {})


EPHEMERAL = {"type": "ephemeral"}
Rewrite = Callable[[list[Message]], list[Message]]
REWRITES: dict[str, Rewrite] = {
    "nothing": lambda history: history,
    "parts": lambda history: [in_parts(said) for said in history],
    "cache marks": lambda history: [*history[:-1], in_parts(history[-1], cache_control=EPHEMERAL)],
    "nulls": lambda history: [{"refusal": None, "tool_calls": None} | said for said in history],
    "clock in the system prompt": lambda history: [system("now it is later"), *history[1:]],
    "compaction": lambda history: [system("s"), user("summary so far"), *history[-2:]],
    "other white space in arguments": lambda history: [reindented(said) for said in history],
}

questions = st.lists(st.text(min_size=1, max_size=20).filter(str.strip), min_size=1, max_size=4, unique=True)


@settings(max_examples=40, deadline=None)
@given(questions, st.sampled_from(sorted(REWRITES)), st.booleans(), st.integers(0, 3))
async def test_every_answer_is_found_again_in_every_known_rewrite(
    tmp_path_factory: pytest.TempPathFactory, questions: list[str], rewrite: str, calls: bool, noise: int
):
    async with opened(tmp_path_factory.mktemp("log")) as log:
        history: list[Message] = [system("s")]
        for number in range(noise):
            capture(log, [user(f"unrelated {number}")], f"another answer {number}")
        for number, question in enumerate(questions):
            history.append(user(question))
            reply = assistant(f"answer {number} to {question}")
            if calls:
                function = {"name": "f", "arguments": json.dumps({"n": number, "q": question})}
                reply |= {"tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]}
            sent = exchange(REWRITES[rewrite](history), reply)
            log.capture(sent)
            history.append(reply)
            found = await log.resolve_history(REWRITES[rewrite](history), "local")
            assert found.id == sent.id
        assert len({each.conversation_id for each in await log.completions(limit=len(questions))}) == 1


# Requests that name the response before


def asked(
    text: Any, says: str, name: str, previous: str | None = None, instructions: str | None = None, **more: Any
) -> Completion:
    """A request to go on from a response, and the answer to it."""
    body = {"model": "m", "input": text, "instructions": instructions, "previous_response_id": previous}
    made = exchange([], surface="responses", request_body=orjson.dumps(body), **more)
    return changed(made, chunks=(orjson.dumps(response(message(says), response_id=name)),))


async def contents(log: Log, made: Completion) -> list[Any]:
    return [each["content"] for each in (await log.completion(made.id)).messages]


async def test_instructions_hold_for_one_request_and_system_items_for_all(log: Log):
    start = [{"role": "system", "content": "Count."}, {"role": "user", "content": "Hi"}]
    turns = [
        asked(start, "One.", "r1", instructions="Be kind."),
        asked("More", "Two.", "r2", previous="r1", instructions="Be brief."),
        asked("More", "Three.", "r3", previous="r2"),
    ]
    for turn in turns:
        log.capture(turn)
    assert await contents(log, turns[0]) == ["Be kind.", "Count.", "Hi"]
    assert await contents(log, turns[1]) == ["Be brief.", "Count.", "Hi", "One.", "More"]
    assert await contents(log, turns[2]) == ["Count.", "Hi", "One.", "More", "Two.", "More"]


async def test_of_equal_ids_the_sessions_own_is_meant_and_never_another_callers(log: Log):
    for session, text in (("s1", "One"), ("s2", "Two")):
        log.capture(asked(text, "Yes.", "r1", session=session))
    log.capture(asked("Secret", "Yes.", "r1", caller="bob"))
    mine = asked("More", "No.", "r2", previous="r1", session="s1")
    latest = asked("More", "No.", "r2", previous="r1")
    theirs = asked("More", "No.", "r2", previous="r1", caller="eve")
    for each in (mine, latest, theirs):
        log.capture(each)
    assert await contents(log, mine) == ["One", "Yes.", "More"]
    assert await contents(log, latest) == ["Two", "Yes.", "More"]
    assert await contents(log, theirs) == ["", "More"], "something stands there, which eve's log doesn't have"


async def test_what_failed_before_is_gone_on_from_without_a_reply(log: Log):
    failed = asked("Hi", "", "r1")
    body = response(status="failed", error={"message": "oops"}, response_id="r1")
    log.capture(changed(failed, chunks=(orjson.dumps(body),)))
    again = asked("Again", "Yes.", "r2", previous="r1")
    log.capture(again)
    assert await contents(log, again) == ["Hi", "Again"]


@pytest.mark.parametrize("held", [False, True], ids=["resent", "held by the server"])
async def test_what_the_user_says_next_is_known_of_a_rated_answer(log: Log, held: bool):
    first = asked("Hi", "Hello.", "r1", instructions="Greet.")
    resent = [{"role": "user", "content": "Hi"}, message("Hello."), {"role": "user", "content": "Why?"}]
    text, previous = ("Why?", "r1") if held else (resent, None)
    second = asked(text, "Because.", "r2", previous, instructions="Greet.")
    for each in (first, second):
        log.capture(each)
    assert await log.next_turn(first.id) == "Why?"
    assert (await log.completion(second.id)).continues == first.id


def talks(seed: int, *, held: bool) -> list[Completion]:
    """Conversations that go on from any point, each turn either resent whole or naming the response before."""
    chance = random.Random(seed)
    made: list[Completion] = []
    histories: list[list[dict[str, Any]]] = [[]]
    for number in range(40):
        at = chance.randrange(len(histories))
        new = [{"role": "user", "content": chance.choice(["why?", "how?", f"what is {number}?"])}]
        says = chance.choice(["OK.", f"answer {number}"])
        body = (new, f"r{at - 1}") if held and at else ([*histories[at], *new], None)
        each = asked(body[0], says, f"r{number}", previous=body[1], instructions=chance.choice(["A", "B"]))
        made.append(changed(each, id=f"cmpl_{number:026}"))
        histories.append([*histories[at], *new, message(says)])
    return made


@pytest.mark.parametrize("seed", range(5))
def test_the_log_is_the_same_whoever_holds_the_history(seed: int):
    found = [
        # Equal replies to equal questions are told apart only where the client names the one that it means.
        [row[0:1] + row[2:] for row in stored([parsed(each) for each in talks(seed, held=held)], size)[:40]]
        for held in (False, True)
        for size in (1, 7, 40)
    ]
    assert all(each == found[0] for each in found)
