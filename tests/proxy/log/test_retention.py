"""What need not be kept goes, what is rated or shared stays, and who is forgotten leaves nothing behind."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from burnish.proxy.http.errors import NotFound
from burnish.proxy.log import Keep, Log, retention
from tests.proxy.log.exchanges import CALL, RESULT, all_rated, assistant, capture, pass_on, rate, system, user
from tests.support.inprocess import calling
from tests.support.patience import within

DAY_S = 86_400.0


async def left(log: Log) -> list[str]:
    return [each.id for each in await log.completions(limit=1000)][::-1]


def content(tmp_path: Path) -> list[bytes]:
    with closing(sqlite3.connect(tmp_path / "log" / "log.sqlite3")) as connection:
        bodies = [bytes(body) for (body,) in connection.execute("SELECT body FROM content ORDER BY id")]
        orphans = connection.execute("SELECT id FROM node WHERE content NOT IN (SELECT id FROM content)")
        assert orphans.fetchall() == []
    return bodies


async def test_the_latest_are_kept(log: Log):
    made = [capture(log, [user(f"q{number}")]) for number in range(100)]
    assert await log.prune(Keep(completions=30)) == 70
    assert await left(log) == made[70:]
    assert await log.prune(Keep(completions=30)) == 0
    assert await log.prune(Keep(completions=1000)) == 0


async def test_what_is_old_goes_unless_it_is_rated(log: Log):
    old = [capture(log, [user(f"o{n}")], created_at=time.time() - 40 * DAY_S) for n in range(6)]
    new = capture(log, [user("new")])
    await rate(log, old[1])
    await rate(log, old[2], reward=None, comment="too long")
    await rate(log, old[3], preferred_over=old[4])
    taken_back = (await rate(log, old[5])).id
    await log.undo_feedback(taken_back)
    assert await log.prune(Keep(days=30)) == 2
    assert await left(log) == [*old[1:5], new]
    with pytest.raises(NotFound):
        await log.feedback(taken_back)
    assert {each.completion.id for each in await all_rated(log)} == {old[1], old[2], old[3]}
    assert await log.prune(Keep(days=30, rated=False)) == 4
    assert await left(log) == [new]
    assert await log.feedbacks() == []


async def test_a_rating_of_a_conversation_keeps_all_of_it(log: Log):
    long_ago = time.time() - 40 * DAY_S
    first = capture(log, [user("q")], "a reply that names its conversation", created_at=long_ago)
    history = [user("q"), assistant("a reply that names its conversation"), user("more")]
    second = capture(log, history, created_at=long_ago)
    capture(log, [user("something else")], created_at=long_ago)
    await rate(log, second, scope="conversation")
    await log.prune(Keep(days=30))
    assert await left(log) == [first, second]


async def test_a_rating_of_one_of_several_answers_keeps_them_all(log: Log):
    messages = [{"index": n, "message": assistant(f"a{n}"), "finish_reason": "stop"} for n in range(2)]
    two = {"choices": messages}
    made = capture(log, [user("q")], created_at=time.time() - 40 * DAY_S, chunks=(orjson.dumps(two),))
    await rate(log, made, choice=1)
    assert await log.prune(Keep(days=30)) == 0
    assert await left(log) == [made]


async def test_a_next_turn_that_training_reads_stays_with_the_answer_before_it(log: Log):
    long_ago = time.time() - 40 * DAY_S
    history, made = [], []
    for turn in range(4):
        history.append(user(f"q{turn}"))
        made.append(capture(log, list(history), f"a{turn}", created_at=long_ago))
        history.append(assistant(f"a{turn}"))
    await rate(log, made[1], -1.0)

    async def comments(keep: Keep) -> list[str | None]:
        await log.prune(keep)
        return [each.comment for each in await all_rated(log, next_turns=True)]

    assert await comments(Keep(days=30, next_turns=True)) == ["q2"]
    assert await left(log) == made[1:3]
    assert await comments(Keep(days=30)) == [None]
    assert await left(log) == [made[1]]


async def test_a_rated_answer_keeps_its_context_its_calls_and_its_place_in_a_thread(log: Log):
    long_ago = time.time() - 40 * DAY_S
    opening = [user("q0"), assistant("an ignored answer"), user("q1")]
    capture(log, opening[:1], "an ignored answer", created_at=long_ago)
    call = capture(log, opening, CALL, created_at=long_ago)
    answer = capture(log, [*opening, CALL, RESULT], "a1", created_at=long_ago)
    await rate(log, answer, -1.0, scope="turn")
    assert await log.prune(Keep(days=30)) == 1
    assert await left(log) == [call, answer]
    rated = {each.completion.id: each for each in await all_rated(log)}
    assert {name: each.weight for name, each in rated.items()} == {call: 0.5, answer: 0.5}
    assert list(rated[call].completion.messages) == opening, "the ignored answer is still its context"
    again = [*opening, CALL, RESULT, assistant("a1"), user("/rl good")]
    assert (await log.resolve_history(again[:-1], "local", None)).id == answer


async def test_shared_messages_stay_while_something_uses_them(log: Log, tmp_path: Path):
    shared = system("shared by all")
    capture(log, [shared, user("first")], "said twice", params={"tools": ["t" * 300]})
    kept = capture(log, [shared, user("second")], "said twice", params={"tools": ["t" * 300]})
    before = await log.completion(kept)
    await log.prune(Keep(completions=1))
    assert await log.completion(kept) == before
    await log.counts()
    bodies = b"".join(content(tmp_path))
    assert b"first" not in bodies
    assert all(each in bodies for each in (b"shared by all", b"second", b"said twice", b"ttt"))
    await log.forget("local")
    await log.counts()
    assert content(tmp_path) == []
    again = capture(log, [shared, user("first")], "said twice")
    assert (await log.completion(again)).messages == (shared, user("first"))


async def test_a_clock_that_was_set_back_lets_nothing_new_go(log: Log):
    first = capture(log, [user("today")])
    set_back = capture(log, [user("today, by a clock that stands at 1970")], created_at=1000.0)
    last = capture(log, [user("today again")])
    assert await log.prune(Keep(days=1)) == 0
    assert await left(log) == [first, set_back, last]


async def test_a_clock_that_was_ahead_for_a_while_keeps_nothing_for_ever(log: Log):
    old, ahead = time.time() - 40 * DAY_S, time.time() + 1000 * DAY_S
    capture(log, [user("old")], created_at=old)
    capture(log, [user("old, by a clock that was ahead")], created_at=ahead)
    capture(log, [user("old as well")], created_at=old)
    ambiguous = capture(log, [user("old or new")], created_at=ahead)
    new = capture(log, [user("new")])
    assert await log.prune(Keep(days=30)) == 3
    assert await left(log) == [ambiguous, new]


async def test_nothing_waits_while_much_is_taken_out(log: Log, monkeypatch: pytest.MonkeyPatch):
    steps, prune = 0, retention.prune

    def step(*given: Any, **more: Any) -> tuple[int, int]:
        nonlocal steps
        steps += 1
        return prune(*given, **more)

    monkeypatch.setattr(retention, "prune", step)
    for number in range(2000):
        capture(log, [user(f"q{number}")])
    rated = capture(log, [user("rated")])
    await log.counts()
    pruning = asyncio.ensure_future(log.prune(Keep(completions=1)))
    most, ratings = 0, 0
    while not pruning.done():
        before = steps
        await rate(log, rated, rater=str(ratings))
        most = max(most, steps - before)
        ratings += 1
    assert await pruning == 2000
    assert steps > 60 and ratings > 5
    assert most <= 3, "the step under way, and one that comes in the same batch or after it"


LIMITS = [
    ({"keep_unrated_days": 30}, ["rated 200", "rated 50", "new"]),
    ({"keep_unrated_days": 30, "keep_days": 100}, ["rated 200", "rated 50", "new"]),
    ({"keep_unrated_days": 30, "keep_days": 100, "keep_rated": False}, ["rated 50", "new"]),
    ({"keep_unrated_days": 100, "keep_days": 30}, ["rated 200", "rated 50", "new"]),
    ({"keep_unrated_days": 100, "keep_completions": 1}, ["rated 200", "rated 50", "new"]),
    ({"keep_unrated_days": 100}, ["rated 200", "rated 50", "50", "new"]),
]


@pytest.mark.parametrize(("limits", "kept"), LIMITS)
async def test_ignored_answers_may_go_earlier(tmp_path: Path, limits: dict[str, Any], kept: list[str]):
    """By the settings, in the running program. A completion stays if it is within all limits."""
    (tmp_path / "data").mkdir()
    with closing(Log.open(tmp_path / "data" / "burnish.db")) as log:
        for name in ("200", "rated 200", "rated 50", "50", "new"):
            age = float(name.split()[-1]) if name != "new" else 0.0
            made = capture(log, [user(name)], created_at=time.time() - age * DAY_S)
            if "rated" in name:
                await rate(log, made)
        passed_on = [pass_on(log, created_at=time.time() - days * DAY_S) for days in (200, 0)]
        await log.counts()
    async with calling(tmp_path, upstream="http://127.0.0.1:1", log=limits) as http:
        async with asyncio.timeout(within(30)):
            while True:
                listed = (await http.get("/burnish/completions")).json()["data"]
                others = (await http.get("/burnish/passthrough")).json()["data"]
                if len(listed) <= len(kept) and len(others) == 1:
                    break
                await asyncio.sleep(0.02)
    assert [each["prompt"] for each in listed][::-1] == kept
    assert others[0]["id"] == passed_on[1]


# Forgetting


async def test_who_is_forgotten_leaves_no_byte_behind(log: Log, tmp_path: Path):
    said = [system("shared"), user("my number is 4711-0815")]
    secret = capture(log, said, "noted: 4711-0815", caller="ann")
    raw = capture(log, [user("x")], caller="ann", request_body=b"4711-0815 {broken")
    kept = capture(log, [system("shared"), user("other")], caller="bob")
    await rate(log, secret, rater="ann", comment="I am 4711-0815")
    await rate(log, kept, rater="ann", comment="4711-0815 thinks so, too")
    bobs = await rate(log, kept, rater="bob")
    await log.add_instruction("ann", "say 4711-0815")
    assert await log.forget("ann") == 3
    assert await log.forget("ann") == 0
    assert await left(log) == [kept]
    assert [each.id for each in await log.feedbacks()] == [bobs.id]
    assert (await log.completion(kept)).messages[0] == system("shared")
    assert await log.instructions("ann") == []
    for missing in (secret, raw):
        with pytest.raises(NotFound):
            await log.completion(missing)
    for file in filter(Path.is_file, (tmp_path / "log").rglob("*")):
        assert b"4711-0815" not in file.read_bytes(), file.name
