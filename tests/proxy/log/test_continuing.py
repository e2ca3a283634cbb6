"""Requests that name the response before: what the server holds of them is looked up in the log."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from burnish.proxy.log import Log
from burnish.proxy.log.capture import parsed
from burnish.proxy.records import Completion
from tests.proxy.log.exchanges import exchange
from tests.proxy.log.test_intake import stored
from tests.support.records import changed
from tests.support.responses import message, response


def asked(
    text: Any, says: str, name: str, previous: str | None = None, instructions: str | None = None, **more: Any
) -> Completion:
    """A request to go on from a response, and the answer to it."""
    body = {"model": "m", "input": text, "instructions": instructions, "previous_response_id": previous}
    made = exchange([], surface="responses", request_body=orjson.dumps(body), **more)
    return changed(made, chunks=(orjson.dumps(response(message(says), response_id=name)),))


async def contents(log: Log, made: Completion) -> list[Any]:
    return [each["content"] for each in (await log.completion(made.id)).messages]


async def test_in_one_batch_and_in_several_it_stands_on_all_before(log: Log):
    turns = [asked("Hi", "Hello.", "r1"), asked("More", "Sure.", "r2", previous="r1")]
    for turn in turns:
        log.capture(turn)
    assert await contents(log, turns[1]) == ["Hi", "Hello.", "More"]
    last = asked("And?", "No.", "r3", previous="r2")
    log.capture(last)
    assert await contents(log, last) == ["Hi", "Hello.", "More", "Sure.", "And?"]
    found = [await log.completion(turn.id) for turn in (*turns, last)]
    assert len({each.conversation_id for each in found}) == 1


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
    assert await contents(log, theirs) == ["More"]


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
