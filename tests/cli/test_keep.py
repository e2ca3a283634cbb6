"""``burnish backup``, ``export`` and ``forget``, and what is taken out by itself."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from burnish.cli.keep import PAGE
from tests.support.inprocess import behind, serving
from tests.support.program import NOBODY, ask, call, said
from tests.support.upstream import completion, reply, upstream


async def test_a_backup_while_it_runs_and_when_it_does_not(tmp_path: Path) -> None:
    data = {"BURNISH_DATA_DIR": str(tmp_path / "data")}
    async with upstream(reply(completion())) as other, serving(tmp_path, upstream=other.url) as (url, _):
        await asyncio.to_thread(ask, url)
        await asyncio.to_thread(call, "history", url=url)  # by now it is stored
        done = await asyncio.to_thread(call, "backup", str(tmp_path / "one.db"), env=data)
        assert (done.returncode, done.stderr) == (0, "")
        assert "copied 1 completions" in done.stdout
        again = await asyncio.to_thread(call, "backup", str(tmp_path / "one.db"), env=data)
        assert again.returncode == 1 and "exists already" in again.stderr
    done = call("backup", str(tmp_path / "two.db"), "--data-dir", str(tmp_path / "data"), "--json")
    assert json.loads(done.stdout) == {"file": str(tmp_path / "two.db"), "completions": 1}


async def test_all_that_there_is_of_somebody_is_written_down(tmp_path: Path) -> None:
    """Earliest first, over several pages, and nothing of anybody else's."""
    file, ann = tmp_path / "ann.jsonl", {"x-burnish-user": "ann"}
    async with behind(tmp_path, reply(completion())) as (http, _):
        url = str(http.base_url).rstrip("/")
        for number in range(PAGE + 2):
            body = {"model": "m", "messages": [{"role": "user", "content": f"{number}, ann?"}]}
            asked = (await http.post("/v1/chat/completions", json=body, headers=ann)).headers
        bobs = await asyncio.to_thread(ask, url)  # nobody's name came with it
        await http.post("/v1/embeddings", json={"input": "ann"}, headers=ann)
        for made, rating in ((asked["x-burnish-completion-id"], "bad"), (bobs, "good")):
            rated = {"completion_id": made, "rating": rating}
            assert (await http.post("/v1/feedback", json=rated, headers=ann)).status_code == 201
        await http.post("/burnish/instructions", json={"text": "be brief"}, headers=ann)
        done = await asyncio.to_thread(call, "export", str(file), "--user", "ann", url=url)
        again = await asyncio.to_thread(call, "export", str(file), "--user", "ann", url=url)
        nothing = await asyncio.to_thread(said, "export", str(tmp_path / "x"), "--user", "eve", url=url)
    assert f"wrote {PAGE + 6} lines" in done.stdout, done.stderr
    assert (again.returncode, nothing["lines"]) == (2, 0)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    others = [line["object"] for line in lines[PAGE + 2 :]]
    assert others == ["passthrough", "feedback", "feedback", "instruction"]
    asked_for = [line["messages"][-1]["content"] for line in lines[: PAGE + 2]]
    assert asked_for == [f"{number}, ann?" for number in range(PAGE + 2)]
    assert all(line["reply"]["content"] for line in lines[: PAGE + 2])
    assert [line["reward"] for line in lines if line["object"] == "feedback"] == [-1.0, 1.0]
    assert lines[-1]["text"] == "be brief"
    assert file.stat().st_mode & 0o777 == 0o600


async def test_an_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    done = await asyncio.to_thread(call, "export", str(tmp_path / "x"), "--user", "ann", url=NOBODY)
    assert (done.returncode, (tmp_path / "x").exists()) == (3, False)


async def test_a_user_is_forgotten_after_a_question(tmp_path: Path) -> None:
    async with upstream(reply(completion())) as other, serving(tmp_path, upstream=other.url) as (url, _):
        await asyncio.to_thread(ask, url)
        await asyncio.to_thread(call, "good", url=url)
        no = await asyncio.to_thread(call, "forget", "--user", "local", stdin="n\n", url=url)
        assert no.returncode == 130 and "nothing was erased" in no.stderr
        yes = await asyncio.to_thread(call, "forget", "--user", "local", stdin="y\n", url=url)
        assert "erased 1" in yes.stdout, yes.stderr
        assert (await asyncio.to_thread(said, "history", url=url))["data"] == []
        assert "chat_history" not in yes.stdout
        assert (await asyncio.to_thread(said, "forget", "--user", "local", "--yes", url=url))["erased"] == 0
        (tmp_path / "data" / "chat_history").touch()
        typed = await asyncio.to_thread(call, "forget", "--user", "local", "--yes", url=url)
        assert f"is in {tmp_path / 'data' / 'chat_history'}: delete it" in typed.stdout


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
