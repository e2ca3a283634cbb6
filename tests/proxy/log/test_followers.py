"""What follows the log reads all that is there, wakes up for more, and gets over its faults."""

from __future__ import annotations

import asyncio

import pytest

from burnish.proxy.http.errors import Unavailable
from burnish.proxy.log import Log, followers
from burnish.proxy.log.followers import Follower
from tests.proxy.log.exchanges import CALL, RESULT, capture, until, user


async def test_a_follower_reads_to_the_end_and_on_when_it_is_woken(
    log: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "FAULT_PAUSE_S", 0.01)
    seen: list[str] = []
    faults = [Unavailable("the disk is full"), Unavailable("the disk is full"), ValueError("odd")]
    upto = 0

    async def read() -> bool:
        nonlocal upto
        if seen and faults:
            raise faults.pop(0)
        page = await log.behind(upto, 2, full=False)
        seen.extend(completion.id for completion in page.completions)
        more, upto = page.upto != upto, page.upto
        return more

    made = [capture(log, [user(str(number))]) for number in range(5)]
    follower = Follower("nobody reads", read, gather_s=0.0)
    running = asyncio.get_running_loop().create_task(follower.run())
    await until(lambda: seen == made)
    told = [f"nobody reads: {why}. burnish tries again" for why in ("the disk is full", "odd")]
    assert [record.getMessage() for record in caplog.records] == told
    assert [bool(record.exc_info) for record in caplog.records] == [False, True], "a fault of ours is traced"
    made.append(capture(log, [user("later")]))
    await log.completion(made[-1])
    await asyncio.to_thread(follower.wake)
    await until(lambda: seen == made)
    running.cancel()


async def test_what_goes_on_within_a_turn_is_told_from_what_begins_one(log: Log) -> None:
    asked = [user("What is here?")]
    capture(log, asked, CALL)
    inner = capture(log, [*asked, CALL, RESULT], "a and b")
    last = capture(log, [user("Another?")])
    await log.completion(last)
    page = await log.behind(0, 10, full=True, within_turns=True)
    assert [completion.id for completion in page.completions] == [inner]
    assert page.upto == await log.last_row() == 3
