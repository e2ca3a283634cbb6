"""Agents that write an answer anew, as text, before they send it back: smolagents, llama-index and others."""

from __future__ import annotations

import pytest

from burnish.proxy.log import Log
from tests.proxy.log.exchanges import CALL, Message, all_rated, assistant, capture, rate, system, user

TASK: list[Message] = [system("You solve tasks with tools."), user("New task:\nIs it wet in Bonn?")]
CALLED = assistant("Calling tools:\n[{'id': 'c', 'function': {'name': 'f', 'arguments': {'path': '.'}}}]")
SEEN = user("Observation:\nRain.")
STEPS = [*TASK, CALLED, SEEN, CALLED, SEEN]


async def joined(log: Log, one: str, other: str) -> tuple[bool, bool]:
    """Whether both are of one conversation, and whether the other continues the one."""
    before, after = await log.completion(one), await log.completion(other)
    return before.conversation_id == after.conversation_id, after.continues == one


async def test_the_steps_of_a_run_are_one_turn(log: Log):
    steps = [capture(log, STEPS[:length], CALL) for length in (2, 4)]
    steps.append(capture(log, STEPS, "It is wet."))
    found = [await log.completion(each) for each in steps]
    assert len({each.conversation_id for each in found}) == 1
    assert [each.continues for each in found] == [None, *steps[:2]]
    assert {each.prompt for each in found} == {"New task:\nIs it wet in Bonn?"}
    await rate(log, steps[-1], scope="turn")
    assert [each.completion.id for each in await all_rated(log)] == steps
    assert await log.next_turn(steps[0]) is None


async def test_a_run_that_is_repeated_is_a_conversation_of_its_own(log: Log):
    for _ in range(2):
        first, second = capture(log, TASK, CALL), capture(log, STEPS[:4], CALL)
        assert await joined(log, first, second) == (True, True)


async def test_after_an_answer_that_came_back_unchanged_the_link_is_known_too(log: Log):
    chat = [*TASK, assistant("Rain."), user("And in Köln?")]
    first, second = capture(log, TASK, "Rain."), capture(log, chat, CALL)
    third = capture(log, [*chat, CALLED, SEEN], "Sun.")
    assert await joined(log, first, second) == (True, True)
    assert await joined(log, second, third) == (True, True)


async def test_of_samples_of_one_prompt_none_is_continued(log: Log):
    """Runs side by side: nothing says which one a second step belongs to, unless the session does."""
    samples = [capture(log, TASK, CALL, session=session) for session in (None, None, "s1")]
    unknown = capture(log, STEPS[:4], CALL)
    assert not any([(await joined(log, each, unknown))[0] for each in samples])
    known = capture(log, STEPS[:4], CALL, session="s1")
    assert await joined(log, samples[2], known) == (True, True)


async def test_of_two_answers_in_one_conversation_neither_is_continued(log: Log):
    chat = [*TASK, assistant("Rain."), user("And in Köln?")]
    first = capture(log, TASK, "Rain.")
    for reply in ("Sun.", "Snow."):
        capture(log, chat, reply)
    third = capture(log, [*chat, CALLED, SEEN], "Sun.")
    assert await joined(log, first, third) == (True, False)
    assert (await log.completion(third)).continues is None


@pytest.mark.parametrize(
    ("first", "second", "more"),
    [
        (TASK[:1], [*TASK[:1], CALLED, SEEN], {}),  # nobody asked anything yet
        (TASK, STEPS[:4], {"caller": "eve"}),
        (TASK, [system("Another agent."), *STEPS[1:4]], {}),
        (TASK, [*TASK, user("More."), CALLED, SEEN], {}),
    ],
)
async def test_others_dont_join(log: Log, first: list[Message], second: list[Message], more: dict[str, str]):
    one, other = capture(log, first, CALL), capture(log, second, CALL, **more)
    assert await joined(log, one, other) == (False, False)


async def test_a_request_that_failed_is_not_continued(log: Log):
    failed = capture(log, TASK, chunks=(), outcome="failed", status=None)
    assert await joined(log, failed, capture(log, STEPS[:4], CALL)) == (False, False)
