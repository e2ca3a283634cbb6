"""Whose key goes to the upstream, and with whose it is asked what it offers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest

from tests.proxy.relay.test_passthrough import stored
from tests.support.inprocess import behind, calling
from tests.support.upstream import Received, Upstream, completion, reply, upstream

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


STAND_FOR_NONE = ("Bearer burnish", "bearer -", "Bearer DUMMY_KEY", "Bearer", "")
ARRIVES: list[Any] = [({}, OURS), *(({"authorization": key}, OURS) for key in STAND_FOR_NONE)]
ARRIVES += [({"authorization": key}, key) for key in (THEIRS, "Basic dXNlcjpwdw==")]
ARRIVES += [({"authorization": "Bearer burnish", "x-api-key": "sk-theirs"}, None)]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize(("given", "arrives"), ARRIVES)
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


@pytest.mark.parametrize("name", ["key", "api_key", "access_token", "k"])
@pytest.mark.parametrize("spelling", [str, lambda key: quote(key, safe="").replace("-", "%2d")])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1beta/models/m:generateContent", "/v1/files"])
async def test_our_key_in_queries_stays(tmp_path: Path, name: str, spelling: Callable[[str], str], path: str):
    async with before(tmp_path, **OWN) as (client, server):
        head = {"x-burnish-key": OWN["api_key"]}
        for key in (OWN["admin_key"], OWN["api_key"], "burnish-rollout-ro_" + "0" * 26):
            await client.post(f"{path}?a=1&{name}={spelling(key)}&{name}=theirs&b", json=ASK, headers=head)
        # burnish's own key for a Google replaces that of the client.
        theirs = "" if name == "key" and "v1beta" in path else f"&{name}=theirs"
        asked = {each.target.partition("?")[2] for each in server.requests if each.method == "POST"}
        assert asked == {f"a=1{theirs}&b"}


async def test_a_cookie_goes_to_the_main_upstream_only(tmp_path: Path) -> None:
    async with upstream(reply(completion())) as cloud:
        further = {"cloud": {"url": cloud.url, "models": ["theirs"]}}
        async with before(tmp_path, upstreams=further) as (client, main):
            for model in ("theirs", "default"):
                body = ASK | {"model": model}
                asked = await client.post("/v1/chat/completions", json=body, headers={"cookie": "session=1"})
                assert asked.status_code == 200
            for server, cookie in ((cloud, None), (main, "session=1")):
                assert [each.header("cookie") for each in server.requests if each.body] == [cookie]


CANARY = "sk-canary-of-a-caller"
OWN = {"api_key": "sk-canary-api", "admin_key": "sk-canary-admin", "upstream_api_key": "sk-canary-upstream"}
PLACES: list[tuple[dict[str, str], str]] = [
    *(({name: f"Bearer {CANARY}"}, "") for name in ("authorization", "proxy-authorization")),
    *(({name: CANARY}, "") for name in ("x-api-key", "x-goog-api-key", "api-key", "x-burnish-key", "x-auth-token")),
    ({"cookie": f"session={CANARY}"}, ""), ({"authorization": f"Basic {CANARY}"}, ""),
    *(({}, f"?{name}={CANARY}") for name in ("key", "api_key", "access_token", "x")),
]  # fmt: skip
ROUTES = [
    "/v1/chat/completions", "/v1/messages", "/v1beta/models/m:generateContent", "/v1/embeddings", "/v1/files",
    "/v1/feedback", "/burnish/nothing", "/sleep",
]  # fmt: skip
SHOWN = [
    "/burnish/status", "/burnish/config", "/metrics", "/healthz", "/burnish/passthrough", "/burnish/completions",
    "/burnish/raters", "/v1/feedback", "/burnish/users/local",
]  # fmt: skip


async def asked_everywhere(client: httpx.AsyncClient) -> list[str]:
    """Send the canary in each place to each route, then look at all there is to see; return all answers."""
    said = []
    asked = ASK | {"contents": [{"parts": [{"text": "Hi."}]}], "max_tokens": 1}
    for number, (headers, query) in enumerate(PLACES):
        own = {"x-burnish-key": [OWN["api_key"], OWN["admin_key"]][number % 2]}
        for route in ROUTES:
            said.append((await client.post(route + query, json=asked, headers=own | headers)).text)
    for route in SHOWN:
        shown = await client.get(route, headers={"x-burnish-key": OWN["admin_key"]})
        assert shown.status_code == 200, route
        said.append(shown.text)
    return said


async def test_keys_are_kept_and_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "burnish")
    async with before(tmp_path, **OWN) as (client, server):
        said = await asked_everywhere(client)
    async with calling(tmp_path, upstream="http://127.0.0.1:9", **OWN) as client:
        said += await asked_everywhere(client)
    went_up = "".join(f"{each.target} {each.headers} {each.body!r}" for each in server.requests)
    assert CANARY in went_up and OWN["upstream_api_key"] in went_up
    assert OWN["api_key"] not in went_up and OWN["admin_key"] not in went_up
    files = stored(tmp_path)
    assert b"Hi." in files and b"sk-canary" not in files
    assert "sk-canary" not in "".join([*said, caplog.text])
