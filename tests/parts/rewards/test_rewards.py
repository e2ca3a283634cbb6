"""A reward model from ratings over HTTP: learnt, shown, kept over a restart, and giving each new answer a reward."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest

from tests.support.inprocess import behind, logged
from tests.support.program import call
from tests.support.rated import ask, learn, parrot, rate, rate_many, sentence
from tests.support.watching import watching


async def rewarded(client: httpx.AsyncClient, texts: list[str]) -> list[float]:
    """Ask for some answers, and wait until a page is told their rewards."""
    async with watching(str(client.base_url)) as page:
        names = [(await ask(client, each)).headers["x-burnish-completion-id"] for each in texts]
        rows = [await page.next("answer", lambda row: row["reward"] is not None, id=name) for name in names]
    return [row["reward"] for row in rows]


async def test_answers_get_rewards_by_what_was_learnt_from_ratings(tmp_path: Path) -> None:
    dice = random.Random(1)
    async with behind(tmp_path, parrot({})) as (client, _):
        await rate_many(client)
        before = (await ask(client, "before it was on")).headers["x-burnish-completion-id"]
        shown = await learn(client)
        assert (shown["on"], shown["form"]) == (True, "words or form")
        assert (shown["fault"], shown["reason"]) == (None, None)
        counts = shown["learnt_from"]
        assert (counts["good"], counts["bad"], counts["pairs"], counts["conversations"]) == (20, 20, 0, 40)
        (form,) = [each for each in shown["forms"] if each["chosen"]]
        assert form["order"] > 0.9
        assert 0.65 < form["lower"] < form["order"] <= form["upper"] <= 1

        good, bad = await rewarded(client, [sentence(dice, liked=liked) for liked in (True, False)])
        assert 0 <= bad < 0.5 < good <= 1
        row = (await client.get("/burnish/completions")).json()["data"][0]
        assert (row["reward"], row["rewarded_by"]) == (bad, shown["id"])
        unseen = (await client.get(f"/burnish/completions/{before}")).json()
        assert (unseen["reward"], unseen["rewarded_by"]) == (None, None), "it was stored before"

        url = str(client.base_url)
        told = await asyncio.to_thread(call, "reward", "show", url=url)
        assert "on since" in told.stdout
        assert "20 good, 20 bad in 40 conversations" in told.stdout
        assert "words or form" in told.stdout
        listed = await asyncio.to_thread(call, "history", "-n", "1", url=url)
        assert f"reward {bad:.2f}" in listed.stdout
        assert f"{bad:.2f} by rm_" in (await asyncio.to_thread(call, "show", row["id"], url=url)).stdout

    async with behind(tmp_path, parrot({})) as (client, _):
        again = (await client.get("/burnish/reward")).json()
        assert (again["id"], again["on"]) == (shown["id"], True), "it is kept over a restart"
        (good,) = await rewarded(client, [sentence(dice, liked=True)])
        assert good > 0.5
        assert (await client.post("/burnish/reward/off", json={})).json()["on"] is False
        await ask(client, "while it is off")
        assert (await client.post("/burnish/reward/on", json={})).json()["on"] is True
        await rewarded(client, ["after it is on again"])
        rows = {row["prompt"]: row["reward"] for row in await logged(client)}
        assert rows["while it is off"] is None


async def test_too_few_ratings_are_refused_in_words(tmp_path: Path) -> None:
    async with behind(tmp_path, parrot({})) as (client, _):
        nothing = await learn(client)
        assert "0 good and 0 bad replies can't teach a reward model" in nothing["fault"]
        await rate_many(client, 31)
        shown = await learn(client)
        assert (shown["id"], shown["on"]) == (None, False)
        assert "16 good and 15 bad" in shown["fault"]
        assert "rate 1 more" in shown["fault"]
        assert not list((tmp_path / "data" / "jobs").iterdir()), "the jobs quoted answers"
        refused = await client.post("/burnish/reward/on", json={})
        assert refused.status_code == 409
        assert "rate 1 more" in refused.json()["error"]["message"]


async def test_ratings_of_one_kind_are_refused_in_words(tmp_path: Path) -> None:
    async with behind(tmp_path, parrot({})) as (client, _):
        await rate_many(client, 32, only="good")
        told = await asyncio.to_thread(call, "reward", "train", url=str(client.base_url))
        assert told.returncode == 1
        assert "32 good and 0 bad" in told.stderr
        assert "rate some answers bad" in told.stderr


async def test_ratings_without_a_rule_give_a_model_that_stays_off(tmp_path: Path) -> None:
    dice = random.Random(3)
    async with behind(tmp_path, parrot({})) as (client, _):
        for number in range(32):
            answer = await ask(client, sentence(dice, liked=bool(number % 2)))
            await rate(client, answer, dice.choice(("good", "bad")))
        shown = await learn(client)
        assert (shown["on"], shown["fault"]) == (False, None)
        assert "chance is 50%" in shown["reason"]
        refused = await client.post("/burnish/reward/on", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "reward_model_not_believed")


async def test_preferences_and_corrections_teach_as_well(tmp_path: Path) -> None:
    dice = random.Random(4)
    async with behind(tmp_path, parrot({})) as (client, _):
        for _ in range(20):
            answer = await ask(client, sentence(dice, liked=False))
            name = answer.headers["x-burnish-completion-id"]
            wanted = {"completion_id": name, "correction": sentence(dice, liked=True)}
            assert (await client.post("/v1/feedback", json=wanted)).status_code == 201
        shown = await learn(client)
        assert shown["learnt_from"]["pairs"] == 20
        assert shown["on"]


BROKEN = {
    "weights.npz": (b"broken", "has 6 bytes, not"),
    "reward.json": (b"{}", "is damaged"),
    "../state.json": (b'{"model": "../../adapters", "on_since": 0}', "names no reward model"),
}


async def test_a_broken_reward_model_costs_rewards_and_no_answers(tmp_path: Path) -> None:
    async with behind(tmp_path, parrot({})) as (client, _):
        await rate_many(client)
        assert (await learn(client))["on"]
    (folder,) = (tmp_path / "data" / "rewards").glob("rm_*")
    for name, (content, says) in BROKEN.items():
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        async with behind(tmp_path, parrot({})) as (client, _):
            answer = (await ask(client, "Still here?")).json()
            assert answer["choices"][0]["message"]["content"] == "Still here?"
            shown = (await client.get("/burnish/reward")).json()
            assert not shown["on"]
            assert says in shown["fault"], name
            assert "burnish reward train" in shown["fault"]
        (folder / name).write_bytes(whole)
    async with behind(tmp_path, parrot({})) as (client, _):
        assert (await client.get("/burnish/reward")).json()["on"], "as before"


async def test_a_foreign_model_gives_rewards_and_chooses(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.support.classifier import classifier

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


async def test_a_wrong_foreign_model_costs_rewards_and_no_answers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    async with behind(tmp_path, parrot({}), reward={"model": str(tmp_path / "nothing")}) as (client, _):
        assert (await ask(client, "Still here?")).status_code == 200
        refused = await ask(client, "Which one?", headers={"x-burnish-best-of": "2"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_reward_model")
        assert "can't be loaded" in refused.json()["error"]["message"]
        assert "can't be loaded" in (await client.get("/burnish/reward")).json()["fault"]
