"""Whose key goes to the upstream, and with whose it is asked what it offers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.inprocess import behind
from tests.support.upstream import Received, Upstream, completion, reply

ASK = {"model": "default", "messages": [{"role": "user", "content": "Hi."}]}
THEIRS, OURS = "Bearer sk-theirs", "Bearer sk-ours"


@asynccontextmanager
async def before(
    tmp_path: Path, wanted: str | None = None, **flags: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Upstream]]:
    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        if wanted is not None and request.header("authorization") != wanted:
            await reply(b'{"error": {"message": "who are you?"}}', status="401 Unauthorized")(request, writer)
            return
        models = orjson.dumps({"data": [{"id": "their-model"}]})
        await reply(models if request.target == "/v1/models" else completion())(request, writer)

    async with behind(tmp_path, answer, **flags) as found:
        yield found


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        ({}, OURS),
        ({"authorization": "Bearer burnish"}, OURS),
        ({"authorization": "bearer -"}, OURS),
        ({"authorization": "Bearer DUMMY_KEY"}, OURS),
        ({"authorization": "Bearer"}, OURS),
        ({"authorization": ""}, OURS),
        ({"authorization": THEIRS}, THEIRS),
        ({"authorization": "Basic dXNlcjpwdw=="}, "Basic dXNlcjpwdw=="),
        ({"authorization": "Bearer burnish", "x-api-key": "sk-theirs"}, None),
    ],
)
async def test_our_key_is_for_callers_whose_own_stands_for_none(
    tmp_path: Path, path: str, given: dict[str, str], arrives: str | None
) -> None:
    async with before(tmp_path, upstream_api_key="sk-ours") as (client, server):
        assert (await client.post(path, json=ASK, headers=given)).status_code == 200
        asked = server.requests[-1]
        assert asked.header("authorization") == arrives
        assert asked.header("x-api-key") == given.get("x-api-key")
    async with before(tmp_path / "without") as (client, server):
        await client.post(path, json=ASK, headers=given)
        assert server.requests[-1].header("authorization") == given.get("authorization")


async def test_what_a_cloud_offers_is_asked_with_the_callers_key(tmp_path: Path) -> None:
    async with before(tmp_path, THEIRS, api_key="geheim") as (client, server):
        both = {"authorization": THEIRS, "x-burnish-key": "geheim", "anthropic-version": "2023-06-01"}
        listed = await client.get("/v1/models", headers=both)
        assert [each["id"] for each in listed.json()["data"]] == ["default", "their-model"]
        assert (await client.post("/v1/chat/completions", json=ASK, headers=both)).status_code == 200
        asked = [each for each in server.requests if each.target == "/v1/models"]
        assert server.requests[-1].json()["model"] == "their-model"
    assert {each.header("anthropic-version") for each in asked} == {"2023-06-01"}
    assert "geheim" not in str(server.requests)


@pytest.mark.parametrize(
    ("flags", "given", "says"),
    [
        ({}, {"authorization": "Bearer wrong"}, "the key that came with the request"),
        ({"api_key": "geheim"}, {"authorization": "Bearer geheim"}, "none came with the request"),
        ({"upstream_api_key": "wrong"}, {}, "burnish's upstream_api_key"),
    ],
)
async def test_a_key_that_is_refused_is_said_to_be_so_once(
    tmp_path: Path, flags: dict[str, str], given: dict[str, str], says: str
) -> None:
    """Whoever is told that the upstream is out of order asks again and again."""
    async with before(tmp_path, THEIRS, **flags) as (client, server):
        refused = await client.post("/v1/chat/completions", json=ASK, headers=given)
        assert refused.status_code == 401
        assert refused.headers["x-should-retry"] == "false"
        assert says in refused.json()["error"]["message"]
        assert len(server.requests) == 1
    assert "geheim" not in str(server.requests)


@pytest.mark.parametrize("key", ["sk-ours", None])
async def test_burnish_says_whether_it_has_a_key_and_not_which(tmp_path: Path, key: str | None) -> None:
    async with before(tmp_path, upstream_api_key=key) as (client, _):
        status = await client.get("/burnish/status")
        assert status.json()["upstream_api_key"] is (key is not None)
        assert "sk-ours" not in status.text
