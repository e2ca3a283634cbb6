"""A damaged log is recognised and left as it is; a backup is one whole moment of the log, also while it is written."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from burnish.proxy.http.errors import ConfigError, Conflict, Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.files import CHECKED_BYTES, ReadConnection, back_up
from burnish.proxy.log.queries import judged
from burnish.proxy.log.store import Reader, select
from tests.proxy.log.exchanges import capture, opened, rate, user


def copies(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("copy*")}


async def test_a_backup_opens_as_a_log_with_all_that_was_acknowledged(tmp_path: Path):
    async with opened(tmp_path) as log:
        made = capture(log, [user("hi")])
        await rate(log, made)
        assert back_up(tmp_path / "log" / "log.sqlite3", tmp_path / "copy.db") == 1
        later = capture(log, [user("later")])
        await log.counts()
    assert back_up(tmp_path / "log" / "log.sqlite3", tmp_path / "after the end.db") == 2
    assert copies(tmp_path) == {"copy.db": 0o600}
    with closing(Log.open(tmp_path / "copy.db")) as copy:
        assert (await copy.completion(made)).rating == 1.0
        assert later not in {each.id for each in await copy.completions()}


async def test_neither_waits_for_the_other(tmp_path: Path):
    async with opened(tmp_path) as log:
        for number in range(300):
            capture(log, [user(f"{number} " + "x" * 50_000)])
        before = (await log.counts())["completions"]
        backup = asyncio.to_thread(back_up, tmp_path / "log" / "log.sqlite3", tmp_path / "copy.db")
        copying = asyncio.ensure_future(backup)
        ratings = 0
        while not copying.done():
            made = capture(log, [user(f"meanwhile {ratings}")])
            await rate(log, made)
            ratings += 1
        assert before <= await copying <= before + ratings
        assert ratings
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        orphans = "SELECT count(*) FROM completion WHERE node NOT IN (SELECT id FROM node)"
        assert copy.execute(orphans).fetchone() == (0,)


async def test_a_listing_of_answers_that_are_deleted_meanwhile_shows_them_as_they_were(tmp_path: Path):
    async with opened(tmp_path) as log:
        for number in range(3):
            capture(log, [user(f"question {number}")])
        await log.counts()
        path = tmp_path / "log" / "log.sqlite3"
        reader = ReadConnection(path)

        def listing(connection: sqlite3.Connection) -> list[str]:
            rows = select(connection, "ORDER BY id", ())
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("DELETE FROM completion")
                other.execute("DELETE FROM content")
            return [each.prompt for each in judged(connection, Reader(connection), rows, full=False)]

        assert await reader.run(listing) == [f"question {number}" for number in range(3)]
        assert await reader.run(lambda connection: select(connection, "", ())) == [], "the next one is of now"
        reader.close_and_wait()


async def test_it_replaces_nothing(tmp_path: Path):
    async with opened(tmp_path):
        (tmp_path / "copy.db").write_text("precious")
        with pytest.raises(Conflict, match="exists already"):
            back_up(tmp_path / "log" / "log.sqlite3", tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"


def test_no_log_and_no_folder_say_what_to_do(tmp_path: Path):
    with pytest.raises(ConfigError, match="there is no log"):
        back_up(tmp_path / "burnish.db", tmp_path / "copy.db")
    Log.open(tmp_path / "burnish.db").close()
    with pytest.raises(Unavailable, match="cannot be copied"):
        back_up(tmp_path / "burnish.db", tmp_path / "nowhere" / "copy.db")


PAGE_BYTES = 4096


async def filled(tmp_path: Path) -> Path:
    async with opened(tmp_path) as log:
        for number in range(200):
            capture(log, [user(f"{number} " + "x" * 1000)])
    return tmp_path / "log" / "log.sqlite3"


async def damaged(tmp_path: Path) -> Path:
    path = await filled(tmp_path)
    content = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(content), PAGE_BYTES) if b"x" * 1000 in content[at : at + PAGE_BYTES]]
    for at in pages[5:25]:  # of messages, which nothing needs at the start
        content[at : at + PAGE_BYTES] = bytes(PAGE_BYTES)
    path.write_bytes(content)
    return path


async def test_damage_is_found_at_the_start_and_by_a_backup_and_the_file_is_kept(tmp_path: Path):
    path = await damaged(tmp_path)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="burnish backup") as caught:
        Log.open(path)
    assert "Move it away" in str(caught.value) and str(path) in str(caught.value)
    with pytest.raises(Unavailable, match="nothing was left"):
        back_up(path, tmp_path / "copy.db")
    assert copies(tmp_path) == {}
    assert path.read_bytes() == before


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "half of it": lambda content: content[: len(content) // 2],
    "a page and a half": lambda content: content[: PAGE_BYTES * 3 // 2],
    "no header": lambda content: bytes(100) + content[100:],
    "another page size": lambda content: content[:16] + b"\x20\x00" + content[18:],
    "the root zeroed": lambda content: content[:100] + bytes(PAGE_BYTES - 100) + content[PAGE_BYTES:],
    "garbage": lambda content: bytes(range(256)) * (len(content) // 256),
    "a page": lambda content: b"<!doctype html>" * 1000,
}


async def test_whatever_is_no_whole_log_is_refused_and_left_as_it_is(tmp_path: Path):
    path = await filled(tmp_path)
    whole = path.read_bytes()
    for name, spoil in SPOILT.items():
        path.write_bytes(spoil(whole))
        with pytest.raises(ConfigError, match="Move it away"):
            Log.open(path).close()
        assert path.read_bytes() == spoil(whole), name
    path.write_bytes(whole)
    Log.open(path).close()


async def test_of_a_large_file_only_the_feedback_is_checked(tmp_path: Path):
    path = await damaged(tmp_path)
    with path.open("r+b") as file:
        file.truncate(CHECKED_BYTES + 4096)  # SQLite goes by the size in its header
    Log.open(path).close()
