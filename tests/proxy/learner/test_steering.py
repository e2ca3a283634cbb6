"""Owners steer the learning from the chat, others do not; a pause outlasts a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.adapters.hosts.detect import weights_digest
from tests.proxy.learner.test_plan import Rated
from tests.proxy.test_foreign_engine import Engine
from tests.support.inprocess import listening, serving


@asynccontextmanager
async def steered(tmp_path: Path, weights: Path, *owners: str) -> AsyncIterator[Rated]:
    train = {"base": str(weights), "min_ratings": 2, "min_good": 1, "min_bad": 1}
    async with (
        listening(Engine().app()) as upstream,
        serving(tmp_path, upstream=upstream, engine="auto", train=train, owners=owners) as (url, _),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http,
    ):
        yield Rated(http, tmp_path / "data", weights_digest(weights))


async def typed(burnish: Rated, text: str, who: str | None = "ann") -> str:
    body: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": text}]}
    headers = {"x-burnish-user": who} if who else {}
    answer = await burnish.http.post("/v1/chat/completions", json=body, headers=headers)
    return str(answer.json()["choices"][0]["message"]["content"])


async def test_an_owner_rolls_back_and_trains_from_the_chat(tmp_path: Path, weights: Path) -> None:
    async with steered(tmp_path, weights, "ann", "local") as burnish:
        assert (await typed(burnish, "/rl off")).startswith("burnish: training no longer starts by itself")
        for parent in (0, 1):
            await burnish.version(parent, [])
        assert await typed(burnish, "/rl rollback") == "burnish: v1 is live again"
        assert await typed(burnish, "/rl rollback base") == "burnish: the base model is live again"
        assert "burnish: the base model is live" in await typed(burnish, "/rl rollback")
        assert await typed(burnish, "/rl rollback v1", None) == "burnish: v1 is live again", (
            "who sends no name"
        )
        assert await typed(burnish, "/rl rollback v2") == "burnish: v2 is live again"
        assert "burnish: there is no version 7" in await typed(burnish, "/rl rollback 7")
        assert "burnish: no run was started: no rating is ready" in await typed(burnish, "/rl train")
        await burnish.rate("good", "bad")
        assert "burnish: training has started (run_" in await typed(burnish, "/rl train")
        assert "/rl rollback [version | base]" in await typed(burnish, "/rl help")
        events = (await burnish.http.get("/burnish/adapters/2")).json()["events"]
        assert events[-1]["reason"] == "rolled back in the chat by ann"


@pytest.mark.parametrize("owners", [(), ("ann",)])
async def test_others_do_not(tmp_path: Path, weights: Path, owners: tuple[str, ...]) -> None:
    async with steered(tmp_path, weights, *owners) as burnish:
        await burnish.version(0, [])
        for who in ("bob", None):
            for command in ("train", "rollback base", "off", "on"):
                assert "Only owners may use /rl" in await typed(burnish, f"/rl {command}", who)
            assert "/rl train" not in await typed(burnish, "/rl help", who)
        status = (await burnish.http.get("/burnish/status")).json()
        assert (status["live"]["version"], status["learner"]["state"]) == (1, "idle")
        assert (await burnish.http.get("/burnish/runs")).json()["runs"] == []


async def test_pausing_outlives_a_restart(tmp_path: Path, weights: Path) -> None:
    async with steered(tmp_path, weights, "ann") as burnish:
        await typed(burnish, "/rl off")
        await burnish.rate("good", "bad")
    async with steered(tmp_path, weights, "ann") as burnish:
        learner = (await burnish.http.get("/burnish/status")).json()["learner"]
        assert learner["state"] == "paused"
        assert "training is paused: `burnish resume` goes on" in (await burnish.plan())["by_itself"]
        assert (await burnish.plan())["would_train"], "who asks for a run gets one"
        assert "training: paused" in await typed(burnish, "/rl status")
        resumed = (await burnish.http.post("/burnish/resume")).json()
        assert (resumed["state"] == "paused", "paused" in resumed["reason"]) == (False, False)
    async with steered(tmp_path, weights, "ann") as burnish:
        assert (await burnish.http.get("/burnish/status")).json()["learner"]["state"] != "paused"
