"""What was merely passed through is kept beside completions, as safely, and taken out as they are."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from burnish.proxy.log import Keep, Log
from burnish.proxy.records import Passthrough
from tests.proxy.log.exchanges import capture, pass_on, until, user

DAY_S = 86_400.0


async def ids(log: Log) -> list[str]:
    return [each.id for each in await log.passthroughs(limit=1000)][::-1]


async def test_it_is_listed_by_itself_latest_first(log: Log) -> None:
    first = pass_on(log, created_at=5.0)
    completion = capture(log, [user("q")])
    others = [pass_on(log, f"/v1/files/{number}") for number in range(3)]
    assert await ids(log) == [first, *others]
    assert [each.id for each in await log.completions()] == [completion]
    assert [each.id for each in await log.passthroughs(limit=2, before=others[2])] == [others[1], others[0]]
    assert (await log.passthroughs(limit=1, before=others[0]))[0] == Passthrough(
        id=first, created_at=5.0, method="POST", path="/v1/embeddings", model="small",
        upstream="http://127.0.0.1:1", status=200, outcome="complete", error=None, caller="local", session=None,
        request_bytes=20, response_bytes=3000, prompt_tokens=4, completion_tokens=None, first_byte_s=0.1,
        total_s=0.2,
    )  # fmt: skip
    assert (await log.counts())["passthrough"] == 4


async def test_it_goes_when_completions_go(log: Log) -> None:
    old = [pass_on(log, created_at=time.time() - 40 * DAY_S) for _ in range(3000)]
    new = [pass_on(log) for _ in range(3)]
    assert await log.prune(Keep(days=50)) == 0
    assert await ids(log) != []
    assert len(await log.passthroughs(limit=5000)) == len(old) + len(new)
    await log.prune(Keep(days=30))
    assert await ids(log) == new
    await log.prune(Keep(completions=2))
    assert await ids(log) == new[1:]


async def test_who_is_forgotten_goes_whole(log: Log) -> None:
    for _ in range(2500):
        pass_on(log, caller="ann")
    stays = pass_on(log, caller="ben")
    assert await log.forget("ann") == 2500
    assert await ids(log) == [stays]


async def test_it_waits_in_files_while_the_database_is_locked(log: Log, tmp_path: Path) -> None:
    first = pass_on(log)
    await log.passthroughs()
    with sqlite3.connect(tmp_path / "log" / "log.sqlite3") as locking:
        locking.execute("BEGIN EXCLUSIVE")
        second = pass_on(log)
        completion = capture(log, [user("q")])
        await until(lambda: list((tmp_path / "log").glob("*-spill/*.captures")))
        locking.rollback()
    locking.close()
    assert await ids(log) == [first, second]
    assert [each.id for each in await log.completions()] == [completion]
