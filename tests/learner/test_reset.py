"""Starting learning over: ``burnish reset``, ``POST /burnish/reset`` and ``/rl reset``."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from contextlib import AbstractContextManager, closing
from pathlib import Path

from burnish.adapters.hosts.base import engine_name
from burnish.adapters.registry import Registry
from tests.learner.test_plan import Rated, rated, steered, typed
from tests.support.lora import random_lora, register, write_peft
from tests.support.patience import within
from tests.support.program import NOBODY, Screen, call, interrupt, on_terminal, said
from tests.support.vllm_double import Engine


async def test_nothing_that_was_learnt_is_left_in_the_engine(tmp_path: Path, weights: Path) -> None:
    """A rollback leaves versions loaded in an engine that has room; a reset doesn't."""
    engine = Engine()
    async with rated(tmp_path, weights, engine) as burnish:
        learnt = await burnish.rate("good", "bad")
        for parent in (0, 1):
            await burnish.version(parent, learnt)
        await burnish.rate("bad")
        assert len(engine.loaded) == 2
        done = await asyncio.to_thread(said, "reset", "--yes", url=str(burnish.http.base_url))
        assert engine.loaded == {}
        expected = {"live": 0, "replaced": 2, "ratings": 3, "run": None, "loaded": []}
        assert {name: done[name] for name in expected} == expected
        status = (await burnish.http.get("/burnish/status")).json()
        assert (status["live"]["version"], status["counts"]["ratings"]) == (0, 0)
        assert status["learner"]["ready"]["new"] == 0
        plan = await burnish.plan(refresh=True)
        assert (plan["would_train"], plan["trains_on"]) == (False, {"good": 0, "bad": 0})
        # Then it learns from what is rated from now on, from the base model.
        await burnish.rate("good", "bad")
        plan = await burnish.plan()
        assert (plan["parent"], plan["trains_on"], plan["replayed"]) == (0, {"good": 1, "bad": 1}, 0)
        # The versions are still there.
        back = await burnish.http.post("/burnish/adapters/rollback", json={"to": 2})
        assert back.json()["live"] == 2
        assert engine_name(Registry(burnish.data / "adapters").get(2)) in engine.loaded
    with closing(sqlite3.connect(done["backup"])) as backup:
        counts = backup.execute("SELECT (SELECT count(*) FROM feedback), (SELECT count(*) FROM undo)")
        assert counts.fetchone() == (3, 0), "the copy is from before"
    (mode,) = {path.stat().st_mode & 0o777 for path in (tmp_path / "data").glob("burnish.before-reset-*.db")}
    assert mode == 0o600


async def test_the_run_under_way_ends_without_a_version(burnish: Rated) -> None:
    await burnish.rate("good", "bad")
    started = (await burnish.http.post("/burnish/train", json={})).json()["run_id"]
    done = (await burnish.http.post("/burnish/reset", json={})).json()
    assert done["run"] in (started, None), "the weights are no model, so the run may have failed already"
    run = (await burnish.http.get(f"/burnish/runs/{started}")).json()
    assert run["ended_at"] and run["status"] in ("interrupted", "failed")
    again = [burnish.http.post("/burnish/reset", json={"reason": "twice"}) for _ in range(2)]
    assert [(await each).json()["ratings"] for each in again] == [0, 0]
    assert (await burnish.http.get("/burnish/status")).json()["learner"]["state"] == "idle"
    await burnish.rate("good", "bad")
    assert (await burnish.plan())["would_train"], "the learner works on"


async def test_a_version_that_waits_is_rejected(burnish: Rated) -> None:
    registry = Registry(burnish.data / "adapters")
    for seed in (1, 2):
        files = write_peft(burnish.data / f"made-{seed}", random_lora(seed))
        made = register(registry, files, burnish.digest)
        registry.record(made.number, "candidate", "passed the gate", awaits="promotion", passed_against=0)
    assert registry.live() == 0
    await burnish.http.post("/burnish/reset", json={"reason": "a new start"})
    states = [(each.state, each.reason) for each in registry.versions()]
    assert states == [("rejected", "a new start")] * 2
    refused = await burnish.http.post("/burnish/adapters/promote", json={})
    assert refused.json()["error"]["code"] == "nothing_waits"


async def test_instructions_from_comments_go_and_those_by_hand_stay(burnish: Rated) -> None:
    await burnish.rate("bad")
    last = (await burnish.http.get("/v1/feedback")).json()["data"][0]["completion_id"]
    comment = {"completion_id": last, "rating": "bad", "comment": "too long"}
    await burnish.http.post("/v1/feedback", json=comment)
    await burnish.http.post("/burnish/instructions", json={"text": "be kind"})
    await burnish.http.post("/burnish/reset", json={})
    left = (await burnish.http.get("/burnish/instructions")).json()["data"]
    assert [each["text"] for each in left] == ["be kind"]


async def test_an_owner_confirms_in_the_chat(tmp_path: Path, weights: Path) -> None:
    async with steered(tmp_path, weights, "ann") as burnish:
        await typed(burnish, "/rl off")
        await burnish.version(0, await burnish.rate("good", "bad"))
        assert "To do it: /rl reset yes" in await typed(burnish, "/rl reset")
        assert (await burnish.http.get("/burnish/status")).json()["live"]["version"] == 1
        assert "Only owners may use /rl reset" in await typed(burnish, "/rl reset yes", "bob")
        answer = await typed(burnish, "/rl reset yes")
        assert "the base model is live, 2 ratings no longer count" in answer
        assert str(burnish.data) in answer
        status = (await burnish.http.get("/burnish/status")).json()
        assert (status["live"]["version"], status["counts"]["ratings"]) == (0, 0)


def asked(url: str) -> AbstractContextManager[tuple[Screen, subprocess.Popen[bytes]]]:
    return on_terminal("reset", "--url", url, env={"COLUMNS": "200", "NO_COLOR": "1"})


async def test_a_terminal_asks_and_anything_else_wants_yes(burnish: Rated) -> None:
    await burnish.version(0, await burnish.rate("good", "bad"))
    url = str(burnish.http.base_url)
    refused = await asyncio.to_thread(call, "reset", url=url, stdin="y\n")
    assert (refused.returncode, "burnish reset --yes" in refused.stderr) == (2, True)

    def say(answer: str, said: str) -> tuple[str, int]:
        with asked(url) as (screen, process):
            seen = screen.until("[y/N]: ")
            screen.type(answer)
            return seen + screen.until(said), process.wait(within(60))

    def leave() -> tuple[int, str]:
        with asked(url) as (screen, process):
            screen.until("[y/N]: ")
            return interrupt(process), screen.until("nothing was changed")

    assert (await asyncio.to_thread(leave))[0] == 130
    assert (await asyncio.to_thread(say, "n\n", "nothing was changed"))[1] == 130
    assert (await burnish.http.get("/burnish/status")).json()["live"]["version"] == 1
    seen, code = await asyncio.to_thread(say, "y\n", "restore the copy")
    assert ("v1 is live, and 2 answers are rated" in seen, code) == (True, 0), seen
    assert (await burnish.http.get("/burnish/status")).json()["live"]["version"] == 0


async def test_a_reset_without_learning_or_without_burnish_says_why(burnish: Rated) -> None:
    (burnish.data / "burnish.db").rename(burnish.data / "away.db")
    done = await burnish.http.post("/burnish/reset", json={})
    assert done.status_code >= 500 or done.status_code == 409
    assert "there is no log" in done.json()["error"]["message"]
    (burnish.data / "away.db").rename(burnish.data / "burnish.db")
    assert call("reset", "--yes", url=NOBODY).returncode == 3
