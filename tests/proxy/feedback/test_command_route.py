"""``POST /burnish/command``: what an agent's hook sends where ``/rl`` was typed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.inprocess import serving
from tests.support.upstream import completion, reply, upstream


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        upstream(reply(completion("Tea is a drink."))) as server,
        serving(tmp_path, upstream=server.url) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        yield client


async def ask(client: httpx.AsyncClient, session: str) -> str:
    asked = {"model": "m", "messages": [{"role": "user", "content": f"What is tea, {session}?"}]}
    answer = await client.post(
        "/v1/chat/completions", json=asked, headers={"x-claude-code-session-id": session}
    )
    return answer.headers["x-burnish-completion-id"]


async def typed(client: httpx.AsyncClient, text: Any, session: str | None = None) -> httpx.Response:
    headers = {"x-burnish-session": session} if session else {}
    return await client.post("/burnish/command", json={"text": text}, headers=headers)


async def test_a_command_means_the_last_answer_of_its_session(client: httpx.AsyncClient):
    first, second = await ask(client, "one"), await ask(client, "two")
    said = (await typed(client, "/rl bad too long", "one")).json()
    assert said["object"] == "command"
    assert said["answer"].startswith("burnish: rated bad with your comment – “Tea is a drink.”")
    await typed(client, "/rl 5")
    ratings = {
        each["completion_id"]: (each["reward"], each["comment"])
        for each in (await client.get("/v1/feedback")).json()["data"]
    }
    assert ratings == {first: (-1.0, "too long"), second: (1.0, None)}
    assert "taken back" in (await typed(client, "/rl undo", "one")).json()["answer"]
    assert "rated" in (await typed(client, "/rl status")).json()["answer"]
    assert "unknown command" in (await typed(client, "/rl nonsense")).json()["answer"]
    assert "nothing was rated" in (await typed(client, "/rl good", "three")).json()["answer"]


@pytest.mark.parametrize("text", ["good", "", "/rlgood", 5, None])
async def test_what_is_no_command_is_refused(client: httpx.AsyncClient, text: Any):
    refused = await typed(client, text)
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "text"
