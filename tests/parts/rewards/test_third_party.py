"""A foreign reward model in front of a running burnish, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.inprocess import behind
from tests.support.rated import ask, parrot
from tests.support.watching import watching

pytest.importorskip("torch")

from tests.support.classifier import classifier


async def test_a_foreign_model_gives_rewards_and_chooses(tmp_path: Path) -> None:
    model = classifier(tmp_path / "model")
    async with behind(tmp_path, parrot({}), reward={"model": str(model)}) as (client, _):
        async with watching(str(client.base_url)) as page:
            best = await ask(client, "usually green river", headers={"x-burnish-best-of": "2"})
            assert best.status_code == 200, best.text
            only = (await ask(client, "never green river")).headers["x-burnish-completion-id"]
            row = await page.next("answer", lambda row: row["reward"] is not None, id=only)
        assert 0 < row["reward"] < 1
        assert row["rewarded_by"] == f"foreign:{model}"
        shown = (await client.get("/burnish/reward")).json()
        assert (shown["on"], shown["fault"]) == (True, None)
        refused = await client.post("/burnish/reward/train", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "foreign_reward_model")


async def test_a_wrong_one_costs_rewards_and_no_answers(tmp_path: Path) -> None:
    async with behind(tmp_path, parrot({}), reward={"model": str(tmp_path / "nothing")}) as (client, _):
        assert (await ask(client, "Still here?")).status_code == 200
        refused = await ask(client, "Which one?", headers={"x-burnish-best-of": "2"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_reward_model")
        assert "can't be loaded" in refused.json()["error"]["message"]
        assert "can't be loaded" in (await client.get("/burnish/reward")).json()["fault"]
