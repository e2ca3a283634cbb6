"""The database is deleted, moved or replaced under a running burnish: it says so, and nothing that it took is lost."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx

from burnish.proxy.log.files import back_up
from tests.proxy.log.exchanges import until
from tests.support.burnish import in_thread, running, start
from tests.support.inprocess import behind
from tests.support.patience import within
from tests.support.upstream import completion, reply, upstream

LAST = {"last": True, "rating": "good"}
SCRIPT = reply(completion("Tea is a drink."))


async def ask(http: httpx.AsyncClient, question: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": question}]}
    assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


async def trouble(http: httpx.AsyncClient) -> str:
    health = (await http.get("/healthz")).json()
    assert (health["status"] == "ok") is not bool(health["trouble"])
    return "; ".join(health["trouble"])


async def until_trouble(http: httpx.AsyncClient, words: str) -> None:
    """Wait until ``/healthz`` says these words; "": that all is well."""
    async with asyncio.timeout(within(30)):
        while words not in (said := await trouble(http)) or (said and not words):
            await asyncio.sleep(0.02)


async def refused(http: httpx.AsyncClient) -> str:
    answer = await http.post("/v1/feedback", json=LAST)
    assert answer.status_code == 503
    return str(answer.json()["error"]["message"])


async def logged(http: httpx.AsyncClient) -> list[tuple[str, float | None]]:
    listed = (await http.get("/burnish/completions")).json()["data"]
    return [(each["prompt"], each["rating"]) for each in listed][::-1]


async def after_a_restart(tmp_path: Path) -> list[tuple[str, float | None]]:
    async with behind(tmp_path, SCRIPT) as (http, _):
        return await logged(http)


def rated(database: Path) -> int:
    """Count the ratings in a file as it is on the disk, whatever is beside it."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM feedback").fetchone()[0])


@asynccontextmanager
async def with_a_rated_answer(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Path]]:
    """Run burnish with one rated answer in its log; gives a client and the database."""
    async with behind(tmp_path, SCRIPT) as (http, _):
        await ask(http, "first")
        assert (await http.post("/v1/feedback", json=LAST)).status_code == 201
        yield http, tmp_path / "data" / "burnish.db"


def delete(database: Path) -> None:
    for each in filter(Path.is_file, database.parent.glob("burnish.db*")):
        each.unlink()


async def test_a_deleted_log_is_written_again_and_takes_ratings_after_a_restart(tmp_path: Path) -> None:
    async with with_a_rated_answer(tmp_path) as (http, database):
        delete(database)
        assert "was deleted while burnish was using it" in await refused(http)
        await ask(http, "second")
        await until_trouble(http, "restart burnish. It has written the file again, with all that it held")
        assert "restart burnish" in await refused(http)
        assert await logged(http) == [("first", 1.0)], "what is stored can still be read"
    async with behind(tmp_path, SCRIPT) as (http, _):
        assert await logged(http) == [("first", 1.0), ("second", None)]
        assert (await http.post("/v1/feedback", json=LAST)).status_code == 201
        assert await trouble(http) == ""


async def test_a_log_that_is_deleted_just_before_burnish_stops_is_written_again(tmp_path: Path) -> None:
    async with with_a_rated_answer(tmp_path) as (_, database):
        delete(database)
    assert rated(database) == 1


async def test_a_killed_burnish_has_lost_nothing_of_a_deleted_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with upstream(SCRIPT) as server:
        settings = {"BURNISH_UPSTREAM": server.url, "BURNISH_ENGINE": "none"}
        first = await asyncio.to_thread(start, data, env=settings)
        try:
            async with httpx.AsyncClient(base_url=first.url, trust_env=False, timeout=within(60)) as http:
                await ask(http, "first")
                assert (await http.post("/v1/feedback", json=LAST)).status_code == 201
                delete(data / "burnish.db")
                await until_trouble(http, "written the file again")
                await ask(http, "second")
                assert "restart burnish" in await refused(http)  # which waits for the answer before it
        finally:
            await asyncio.to_thread(first.kill)
        async with (
            in_thread(running(data, env=settings)) as second,
            httpx.AsyncClient(base_url=second.url, trust_env=False, timeout=within(60)) as http,
        ):
            assert await logged(http) == [("first", 1.0), ("second", None)]


async def test_a_log_that_is_moved_away_goes_on_when_it_is_back(tmp_path: Path) -> None:
    async with with_a_rated_answer(tmp_path) as (http, database):
        away = tmp_path / "away.db"
        database.rename(away)
        assert "was moved away while burnish was using it: put it back" in await refused(http)
        await ask(http, "second")
        assert not database.exists(), "it isn't written again: another file may be put there"
        await until(lambda: rated(away) == 1)  # the file alone holds what was acknowledged
        away.rename(database)
        await until_trouble(http, "")
        assert await logged(http) == [("first", 1.0), ("second", None)]
        assert (await http.post("/v1/feedback", json=LAST)).status_code == 201


async def test_another_file_at_its_place_is_left_alone_and_the_earlier_content_kept(tmp_path: Path) -> None:
    async with with_a_rated_answer(tmp_path) as (http, database):
        await asyncio.to_thread(back_up, database, tmp_path / "backup.db")
        content = (tmp_path / "backup.db").read_bytes()
        await ask(http, "second")
        assert (await http.post("/v1/feedback", json=LAST)).status_code == 201
        (tmp_path / "backup.db").replace(database)
        assert "is another file than the one that burnish opened" in await refused(http)
        await ask(http, "third")
        await until_trouble(http, "What burnish had stored is in")
        assert database.read_bytes() == content
        (kept,) = database.parent.glob("burnish.db.*")
        assert str(kept) in await refused(http)
        assert rated(kept) == 2
    async with behind(tmp_path, SCRIPT) as (http, _):
        assert await logged(http) == [("first", 1.0), ("third", None)]
        assert await trouble(http) == "", "the old write-ahead log isn't mixed into the new file"


async def test_the_database_alone_is_deleted_and_nobody_asks(tmp_path: Path) -> None:
    async with with_a_rated_answer(tmp_path) as (http, database):
        database.unlink()
        await until_trouble(http, "written the file again")
    assert await after_a_restart(tmp_path) == [("first", 1.0)]


async def test_a_moved_data_directory_keeps_answers_in_memory_until_it_is_back(tmp_path: Path) -> None:
    async with with_a_rated_answer(tmp_path) as (http, database):
        database.parent.rename(tmp_path / "away")
        assert f"{database.parent} was moved away" in await refused(http)
        await ask(http, "second")
        assert not database.parent.exists()
        (tmp_path / "away").rename(database.parent)
        await until_trouble(http, "")
        assert await logged(http) == [("first", 1.0), ("second", None)]


async def test_a_deleted_data_directory_gets_the_log_when_it_is_made_again(tmp_path: Path) -> None:
    async with with_a_rated_answer(tmp_path) as (http, database):
        shutil.rmtree(database.parent)
        assert "make that folder again, and burnish writes the log into it" in await refused(http)
        await ask(http, "second")
        database.parent.mkdir()
        await until_trouble(http, "written the file again")
    assert await after_a_restart(tmp_path) == [("first", 1.0), ("second", None)]


async def test_a_deleted_write_ahead_log_takes_nothing_with_it(tmp_path: Path) -> None:
    async with with_a_rated_answer(tmp_path) as (http, database):
        database.with_name("burnish.db-wal").unlink()
        assert "burnish.db-wal was deleted or moved" in await refused(http)
        await until(lambda: rated(database) == 1)
        await ask(http, "second")
    assert await after_a_restart(tmp_path) == [("first", 1.0), ("second", None)]
