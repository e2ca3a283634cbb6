"""Feedback on trial: everything is checked and told as in earnest, and nothing is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.feedback.test_routes import Service, refused
from tests.proxy.log.exchanges import assistant, capture, user
from tests.support.inprocess import behind, ratings
from tests.support.program import call, said
from tests.support.upstream import completion, reply


async def test_it_says_what_would_be_stored_and_stores_nothing(burnish: Service):
    made = capture(burnish.log, [user("hi")])
    trial = {"completion_id": made, "rating": "bad", "comment": "too long", "dry_run": True}
    answer = await burnish.post(trial)
    assert answer.status_code == 200
    told = answer.json()
    assert (told["dry_run"], told["id"], told["created_at"], told["rated"]) == (True, None, None, None)
    assert (await burnish.http.get("/v1/feedback")).json()["data"] == burnish.told == []
    stored = (await burnish.post(trial | {"dry_run": False})).json()
    assert "dry_run" not in stored
    same = told | {name: stored[name] for name in ("id", "created_at")}
    assert same == stored | {"dry_run": True, "rated": None}
    again = (await burnish.post(trial)).json()
    assert (again["repeated"], again["id"], again["rated"]) == (True, stored["id"], "bad")


async def test_what_cannot_teach_is_said(burnish: Service):
    first = capture(burnish.log, [user("a")], assistant(""))
    other = capture(burnish.log, [user("b")])
    empty = await burnish.post({"completion_id": first, "rating": "good", "dry_run": True})
    assert (empty.json()["usable"], empty.json()["reason"]) == (False, "the reply is empty")
    pair = {"completion_id": other, "preferred_over": first, "dry_run": True}
    assert (await burnish.post(pair)).json()["reason"] == "the two answers aren't to the same prompt"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"rating": "lovely"}, 422, "rating"),
        ({"dry_run": "yes", "rating": "good"}, 422, "dry_run"),
        ({}, 422, "rating"),
        ({"rating": "good", "idempotency_key": "k"}, 409, "idempotency_key"),
        ({"rating": "good", "completion_id": "cmpl_nothing"}, 404, "completion_id"),
        ({"rating": "good", "choice": 3}, 422, "choice"),
    ],
)
async def test_what_is_wrong_is_refused_too(burnish: Service, body: dict[str, Any], status: int, param: str):
    made = capture(burnish.log, [user("hi")])
    await burnish.post({"completion_id": made, "rating": "bad", "idempotency_key": "k"})
    refused(await burnish.post({"completion_id": made, "dry_run": True} | body), status, param)


async def test_lists_say_whether_each_piece_can_teach(burnish: Service):
    fine, empty = capture(burnish.log, [user("a")]), capture(burnish.log, [user("b")], assistant(""))
    for name, rating in ((fine, "good"), (fine, "bad"), (empty, "bad")):
        answer = await burnish.post({"completion_id": name, "rating": rating})
    await burnish.http.delete(f"/v1/feedback/{answer.json()['id']}")
    await burnish.post({"completion_id": empty, "rating": "good"})
    found = (await burnish.http.get("/v1/feedback")).json()["data"]
    assert [each["usable"] for each in found] == [False, False, True, False]
    replaced = f"replaced by a later rating, {found[2]['id']}"
    assert [each["reason"] for each in found] == ["the reply is empty", "taken back", None, replaced]
    for each in found:
        assert (await burnish.http.get(f"/v1/feedback/{each['id']}")).json() == each


async def test_the_commands_try_it(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion("Tea is a drink."))) as (client, _):
        url = str(client.base_url)
        question = {"model": "m", "messages": [user("What is tea?")]}
        answer = await client.post("/v1/chat/completions", json=question)
        name = answer.headers["x-burnish-completion-id"]
        tried = (await asyncio.to_thread(call, "bad", "too long", "--dry-run", url=url)).stdout
        as_json = await asyncio.to_thread(said, "rate", name, "4", "--dry-run", url=url)
        assert await ratings(client) == []
        await asyncio.to_thread(call, "good", url=url)
        again = (await asyncio.to_thread(call, "good", "--dry-run", url=url)).stdout
        assert len(await ratings(client)) == 1
    assert "would rate bad with your comment: “Tea is a drink.”" in tried
    assert f"nothing was stored; no rating counts for it now: {name}" in tried
    assert (as_json["reward"], as_json["dry_run"], as_json["usable"]) == (0.5, True, True)
    assert "already rated good" in again
    assert "nothing was stored; it counts as good now" in again
