"""What one burnish exports, another one imports: all of it, once."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.support import chat_wire
from tests.support.inprocess import behind
from tests.support.program import call, said
from tests.support.upstream import completion, reply

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALL = chat_wire.called("look", {"at": "tea"}, "c1")


async def used(http: httpx.AsyncClient) -> list[str]:
    """Ask and rate in every way that there is; return the answers."""
    first: list[dict[str, Any]] = [{"role": "user", "content": "What is tea?"}]
    called = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": "twice"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "leaves"},
    ]
    answers = []
    for messages, params, user in (
        (first, {"temperature": 0.5}, "ann"),
        (first, {}, "ann"),
        (called, {"tools": [TOOL], "n": 2}, "bob"),
    ):
        made = await http.post(
            "/v1/chat/completions",
            json={"model": "m", "messages": messages, **params},
            headers={"x-burnish-user": user, "x-burnish-session": "s1", "user-agent": "tester/1"},
        )
        answers.append(made.headers["x-burnish-completion-id"])
    await http.post("/v1/embeddings", json={"input": "tea"})
    await http.post("/burnish/instructions", json={"text": "be brief"}, headers={"x-burnish-user": "ann"})
    one, other, third = answers
    for statement in (
        {"completion_id": one, "rating": "good", "rater": "ann", "tags": ["tea"], "idempotency_key": "k"},
        {"completion_id": one, "rating": 2, "scale": "likert", "comment": "too long", "rater": "bob"},
        {"completion_id": other, "preferred_over": one, "rater": "ann"},
        {"completion_id": other, "correction": "Tea is leaves in water.", "rater": "ann"},
        {"completion_id": third, "rating": -0.25, "scope": "turn", "rater": "eve", "weight": 0.5},
    ):
        given = await http.post("/v1/feedback", json=statement)
        assert given.status_code == 201, given.text
    await http.delete(f"/v1/feedback/{given.json()['id']}")
    return answers


def address(http: httpx.AsyncClient) -> str:
    return str(http.base_url).rstrip("/")


async def exported(http: httpx.AsyncClient, name: str, *more: object) -> subprocess.CompletedProcess[str]:
    done = await asyncio.to_thread(call, "data", "export", "--as", name, *map(str, more), url=address(http))
    assert done.returncode == 0, done.stderr
    return done


async def imported(http: httpx.AsyncClient, file: Path, *more: str) -> dict[str, Any]:
    """Return what the import says in JSON."""
    return dict(await asyncio.to_thread(said, "data", "import", str(file), *more, url=address(http)))


LEAVES = chat_wire.whole({"content": "Leaves."})
TWO = orjson.dumps(LEAVES | {"choices": [LEAVES["choices"][0] | {"index": index} for index in range(2)]})
"""An answer with two choices."""


async def test_everything_comes_back_as_it_was_and_only_once(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    async with behind(tmp_path / "one", reply(TWO)) as (http, _):
        await used(http)
        done = await exported(http, "jsonl", "--out", before)
    assert "wrote 10 lines: 3 completion, 5 feedback, 1 instruction, 1 passthrough" in done.stderr
    async with behind(tmp_path / "two", reply(completion())) as (http, _):
        tried = await imported(http, before, "--dry-run")
        nothing = (await http.get("/burnish/records")).json()["data"]
        new = await imported(http, before)
        again = await imported(http, before)
        await exported(http, "jsonl", "--out", after)
        listed = (await http.get("/burnish/completions")).json()["data"]
        instructions = (await http.get("/burnish/instructions", headers={"x-burnish-user": "ann"})).json()
        found = (await http.get("/burnish/completions", params={"q": "leaves"})).json()["data"]
    assert nothing == []
    assert tried == new
    assert new["new"] == {"completion": 3, "feedback": 5, "passthrough": 1, "instruction": 1}
    assert (new["skipped"], new["left_out"], new["usable"]) == ([], {}, 4)
    assert (again["new"], again["known"]) == ({}, new["new"])
    assert before.read_text() == after.read_text()
    assert {each["imported_from"] for each in listed} == {"burnish"}
    assert [each["text"] for each in instructions["data"]] == ["be brief"]
    assert {each["id"] for each in found} == {each["id"] for each in listed}
    assert {each["choice_count"] for each in listed} == {2}


async def test_datasets_come_back_as_feedback_that_can_be_learnt(tmp_path: Path) -> None:
    async with behind(tmp_path / "one", reply(completion("Tea is a drink."))) as (http, _):
        await used(http)
        for name in ("sft", "dpo", "kto"):
            await exported(http, name, "--out", tmp_path / f"{name}.jsonl")
    for name, lines in (("sft", 2), ("dpo", 1), ("kto", 2)):
        file = tmp_path / f"{name}.jsonl"
        assert len(file.read_text().splitlines()) == lines, (name, file.read_text())
        async with behind(tmp_path / name, reply(completion())) as (http, _):
            new = await imported(http, file)
            assert (new["format"], new["usable"], new["unusable"]) == (name, lines, {})
            back = await exported(http, name)
            agents = {each["agent"] for each in (await http.get("/burnish/completions")).json()["data"]}
        assert sorted(back.stdout.splitlines()) == sorted(file.read_text().splitlines())
        assert agents == {name}
        assert all(isinstance(json.loads(line), dict) for line in back.stdout.splitlines())
