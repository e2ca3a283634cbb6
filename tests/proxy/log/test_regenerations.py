"""Whether a second answer to the same context is what a person asked for instead of the first."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.proxy.log import Log
from burnish.proxy.records import Regeneration
from tests.proxy.log.exchanges import CALL, RESULT, Message, all_rated, assistant, capture, system, user

NOON = 1_790_000_000.0
LASTS_S = 2.0
TALK: list[Message] = [user("Hi"), assistant("Hello!"), user("A name for a cat?")]


def at(seconds: float, **more: Any) -> dict[str, Any]:
    return {"created_at": NOON + seconds, "total_s": LASTS_S, **more}


async def pairs(log: Log) -> list[tuple[str, str, str | None]]:
    return [(each.completion_id, each.instead_of, each.went_on_from) for each in await log.regenerations()]


async def test_what_was_asked_again_is_kept_with_the_answer_that_was_gone_on_from(log: Log):
    capture(log, TALK[:1], "Hello!", **at(0))
    first = capture(log, TALK, "Tom", **at(10))
    second = capture(log, TALK, "Minka", **at(20))
    (found,) = await log.regenerations()
    conversation = (await log.completion(second)).conversation_id
    assert found == Regeneration(second, first, conversation, NOON + 20, None)
    capture(log, [*TALK, assistant("Minka"), user("Thanks")], "Gladly", **at(30))
    assert await pairs(log) == [(second, first, second)]
    third = capture(log, TALK, "Mia", **at(40))
    assert await pairs(log) == [(third, second, second), (second, first, second)]
    assert [each.completion_id for each in await log.regenerations(limit=1, before_id=third)] == [second]
    assert await log.regenerations(conversation="conv_other") == []
    capture(log, [*TALK, assistant("Tom"), user("Thanks")], "Gladly", **at(50))
    assert {went_on for *_, went_on in await pairs(log)} == {None}  # from both: nobody chose
    assert await all_rated(log) == []


async def test_the_first_question_of_all_counts_once_the_conversation_went_on(log: Log):
    first = capture(log, TALK[:1], "Hello!", **at(0))
    second = capture(log, TALK[:1], "Good day!", **at(10))
    assert await pairs(log) == []  # perhaps somebody else's
    capture(log, [TALK[0], assistant("Hello!"), user("Well")], "Yes?", **at(20))
    assert await pairs(log) == [(second, first, first)]


async def test_what_an_agent_asks_for_itself_is_no_going_on(log: Log):
    compaction = user("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarise.")
    capture(log, TALK[:1], "Hello!", **at(0))
    first = capture(log, TALK, "Tom", **at(10))
    capture(log, [*TALK, assistant("Tom"), compaction], "A summary", **at(13))
    second = capture(log, TALK, "Minka", **at(20))
    capture(log, [*TALK, assistant("Minka"), user("Thanks")], "Gladly", **at(30))
    assert await pairs(log) == [(second, first, second)]
    capture(log, [*TALK, assistant("Minka"), compaction], "A summary", **at(40))
    capture(log, [*TALK, assistant("Minka"), compaction], "Another one", **at(50))
    assert await pairs(log) == [(second, first, second)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (at(10), at(10)),  # side by side
        (at(10), at(12.5)),  # at once
        (at(10), at(20, retry=1)),
        (at(10), at(8000)),
        (at(10, outcome="cancelled"), at(20)),
        (at(10, status=500), at(20)),
        (at(10, caller="ann"), at(20)),
        (at(10, session="s1"), at(20)),
        (at(10), at(20, reply="Tom")),
    ],
)
async def test_a_retry_or_a_repetition_is_none(log: Log, first: dict[str, Any], second: dict[str, Any]):
    capture(log, TALK[:1], "Hello!", **at(0))
    capture(log, TALK, **{"reply": "Tom"} | first)
    capture(log, TALK, **{"reply": "Minka"} | second)
    assert await log.regenerations() == []


async def test_a_prompt_that_is_sampled_many_times_is_none(log: Log):
    capture(log, TALK[:1], "Hello!", **at(0))
    for number in range(12):
        capture(log, TALK, f"Cat {number}", **at(10 + 10 * number))
        capture(log, [system("Name it."), user("A cat")], f"Cat {number}", **at(10 + 10 * number))
    assert await log.regenerations() == []


async def test_a_program_that_is_run_twice_before_somebody_chats_is_none(log: Log):
    """It asks what a person asks later, in another way; only the person's conversation goes on."""
    for number in range(2):
        capture(log, TALK[:1], f"Hello {number}!", **at(10 * number))
    chat = {"params": {"stream": False}}
    first = capture(log, TALK[:1], "Hello there!", **at(30), **chat)
    capture(log, [TALK[0], assistant("Hello there!"), user("Well")], "Yes?", **at(40), **chat)
    assert await pairs(log) == []
    second = capture(log, TALK[:1], "Good day!", **at(50), **chat)
    assert await pairs(log) == [(second, first, first)]


async def test_a_program_that_holds_the_same_conversation_twice_is_none(log: Log):
    for number in range(2):
        capture(log, TALK[:1], "Hello!", **at(60 * number))
        capture(log, TALK, f"Cat {number}", **at(60 * number + 10))
    assert await pairs(log) == []


async def test_what_an_agent_repeats_within_a_turn_is_none(log: Log):
    worked = [user("Hi"), CALL, RESULT]
    capture(log, worked[:1], CALL, **at(0))
    capture(log, worked, "Tom", **at(10))
    capture(log, worked, "Minka", **at(20))
    assert await log.regenerations() == []
