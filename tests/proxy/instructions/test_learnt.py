"""A version that has learnt an instruction retires it; a rollback brings it back. Before an engine that swaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.registry import Registry
from tests.proxy.test_foreign_engine import Engine
from tests.support.adapters import register
from tests.support.inprocess import listening, serving
from tests.support.lora import random_lora, write_peft


async def told(http: httpx.AsyncClient, engine: Engine, model: str = "default") -> tuple[list[str], str]:
    """Ask; return the instructions that the engine was told, and the completion's id."""
    body = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}]}
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    messages = engine.asked[-1][1]["messages"]
    instructions = [line.removeprefix("- ") for line in messages[0]["content"].splitlines()[1:]]
    assert answer.headers.get("x-burnish-instructions", "0") == str(len(instructions))
    return instructions, answer.headers["x-burnish-completion-id"]


async def said(http: httpx.AsyncClient, completion: str, comment: str) -> str:
    body = {"completion_id": completion, "rating": "bad", "comment": comment}
    return str((await http.post("/v1/feedback", json=body)).json()["id"])


def version(tmp_path: Path, digest: str, parent: int, feedback: list[str]) -> int:
    registry = Registry(tmp_path / "data" / "adapters")
    source = write_peft(tmp_path / f"made{parent}", random_lora(parent + 1))
    made = register(registry, source, digest, parent=parent, feedback_ids=feedback, objective="critique")
    return made.number


async def live(http: httpx.AsyncClient, number: int) -> None:
    path, body = ("rollback", {"to": 0}) if number == 0 else (f"{number}/promote", {"force": True})
    answer = await http.post(f"/burnish/adapters/{path}", json=body)
    assert answer.json()["live"] == number, answer.text


async def state(http: httpx.AsyncClient) -> dict[str, Any]:
    return {each["text"]: each["state"] for each in (await http.get("/burnish/instructions")).json()["data"]}


async def test_a_version_retires_what_it_and_its_ancestors_learnt(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"the base")
    engine = Engine()
    train = {"base": str(weights), "schedule": "manual"}
    async with (
        listening(engine.app()) as upstream,
        serving(tmp_path, upstream=upstream, engine="auto", train=train, instructions=True) as (url, _),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http,
    ):
        digest = weights_digest(weights)
        long = await said(http, (await told(http, engine))[1], "too long")
        first = version(tmp_path, digest, 0, [long])
        lists = await said(http, (await told(http, engine))[1], "no lists")
        second = version(tmp_path, digest, first, [lists])
        await http.post("/burnish/instructions", json={"text": "in German"})
        all_of_them = ["too long", "no lists", "in German"]
        assert (await told(http, engine))[0] == all_of_them

        await live(http, first)
        assert (await told(http, engine))[0] == ["no lists", "in German"]
        assert await state(http) == {"in German": "active", "no lists": "active", "too long": "learnt"}
        await live(http, second)
        assert (await told(http, engine))[0] == ["in German"]
        assert (await http.get("/burnish/status")).json()["instructions"] == {"on": True, "count": 1}
        # Another version, or a model that burnish does not train, is told what that one has not learnt.
        assert (await told(http, engine, "smollm2@v1"))[0] == ["no lists", "in German"]
        assert (await told(http, engine, "smollm2@base"))[0] == all_of_them
        assert (await told(http, engine, "other"))[0] == all_of_them
        await live(http, 0)
        assert (await told(http, engine))[0] == all_of_them
        await live(http, second)
        assert (await told(http, engine))[0] == ["in German"]
