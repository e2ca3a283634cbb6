"""``burnish backup`` and ``burnish forget``, and what is taken out by itself."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.support.inprocess import serving
from tests.support.program import ask, run, said
from tests.support.upstream import completion, reply, upstream


async def test_a_backup_while_it_runs_and_when_it_does_not(tmp_path: Path) -> None:
    data = {"BURNISH_DATA_DIR": str(tmp_path / "data")}
    async with upstream(reply(completion())) as other, serving(tmp_path, upstream=other.url) as (url, _):
        await asyncio.to_thread(ask, url)
        await asyncio.to_thread(run, "history", url=url)  # by now it is stored
        done = await asyncio.to_thread(run, "backup", str(tmp_path / "one.db"), env=data)
        assert (done.returncode, done.stderr) == (0, "")
        assert "copied 1 completions" in done.stdout
        again = await asyncio.to_thread(run, "backup", str(tmp_path / "one.db"), env=data)
        assert again.returncode == 1 and "exists already" in again.stderr
    done = run("backup", str(tmp_path / "two.db"), "--data-dir", str(tmp_path / "data"), "--json")
    assert json.loads(done.stdout) == {"file": str(tmp_path / "two.db"), "completions": 1}


async def test_a_user_is_forgotten_after_a_question(tmp_path: Path) -> None:
    async with upstream(reply(completion())) as other, serving(tmp_path, upstream=other.url) as (url, _):
        await asyncio.to_thread(ask, url)
        await asyncio.to_thread(run, "good", url=url)
        no = await asyncio.to_thread(run, "forget", "--user", "local", stdin="n\n", url=url)
        assert no.returncode == 130 and "nothing was erased" in no.stderr
        yes = await asyncio.to_thread(run, "forget", "--user", "local", stdin="y\n", url=url)
        assert "erased 1" in yes.stdout, yes.stderr
        assert (await asyncio.to_thread(said, "history", url=url))["data"] == []
        assert (await asyncio.to_thread(said, "forget", "--user", "local", "--yes", url=url))["erased"] == 0


async def test_what_is_too_much_is_taken_out_by_itself(tmp_path: Path) -> None:
    flags = {"log": {"keep_completions": 2}}
    async with upstream(reply(completion())) as other:
        async with serving(tmp_path, upstream=other.url) as (url, _):
            names = [await asyncio.to_thread(ask, url, f"What is {number}?") for number in range(5)]
        async with serving(tmp_path, upstream=other.url, **flags):
            left: list[str] = []
            while left != names[3:]:
                await asyncio.sleep(0.05)
                with closing(sqlite3.connect(tmp_path / "data" / "burnish.db")) as log:
                    left = [name for (name,) in log.execute("SELECT id FROM completion ORDER BY n")]
