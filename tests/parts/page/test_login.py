"""Signing in: what it opens, and every way around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.inprocess import behind
from tests.support.upstream import completion, reply

BOTH = {"api_key": "caller", "admin_key": "root"}
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "What is tea?"}]}
DATA = ("/burnish/completions", "/burnish/runs", "/burnish/users/ann", "/burnish/config", "/v1/feedback")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with behind(tmp_path, reply(completion()), **BOTH) as (client, _):
        yield client


def page(client: httpx.AsyncClient, **headers: str) -> dict[str, str]:
    """Return the headers that a browser sends with the page's requests."""
    own = str(client.base_url).rstrip("/")
    return {"origin": own, "sec-fetch-site": "same-origin", "referer": f"{own}/"} | headers


async def sign_in(client: httpx.AsyncClient, key: str) -> dict[str, str]:
    """Sign in as the page does; return the headers of its later requests. The client keeps the cookie."""
    answer = await client.post("/burnish/login", json={"key": key}, headers=page(client))
    assert answer.status_code == 200, answer.text
    return page(client, **{"x-burnish-page": answer.json()["proof"]})


async def who(client: httpx.AsyncClient, headers: dict[str, str] | None = None) -> dict[str, Any]:
    return dict((await client.get("/burnish/whoami", headers=headers)).json())


async def test_the_page_loads_without_a_key_and_data_doesnt(client: httpx.AsyncClient) -> None:
    assert (await client.get("/burnish/whoami")).headers["cache-control"] == "no-store"
    html = {"accept": "text/html,application/xhtml+xml"}
    for path in ("/", "/burnish/page/index.html", "/burnish/page/main.js", "/burnish/whoami"):
        assert (await client.get(path, headers=html)).status_code == 200, path
    closed = ("/burnish/status", "/healthz", "/metrics", "/v1/models", "/burnish/events", "/docs")
    for path in (*DATA, *closed):
        assert (await client.get(path, headers=html)).status_code == 401, path
    for path in ("engine/", "page/../status", "page/%2e%2e/status"):
        assert (await client.get(f"/burnish/{path}", headers=html)).status_code in (400, 401, 404), path
    found = await who(client)
    assert (found["may"], found["needs_key"], found["keys"]) == (["open"], True, ["admin_key", "api_key"])


@pytest.mark.parametrize(
    ("keys", "key", "may", "may_not"),
    [
        (BOTH, "caller", "ask rate watch", "read steer erase weigh"),
        (BOTH, "root", "ask rate watch read steer erase weigh transfer_anywhere", ""),
        ({"api_key": "caller"}, "caller", "ask rate read steer", ""),
        ({"admin_key": "root"}, "root", "read steer", ""),
    ],
)
async def test_signed_in_with_a_key_is_as_good_as_sending_it(
    tmp_path: Path, keys: dict[str, str], key: str, may: str, may_not: str
) -> None:
    async with behind(tmp_path, reply(completion()), **keys) as (client, upstream):
        signed = await sign_in(client, key)
        found = await who(client, signed)
        assert set(may.split()) <= set(found["may"])
        assert not set(may_not.split()) & set(found["may"])
        by_key = await who(client, {"x-burnish-key": key})
        assert found | {"signed_in_until": None} == by_key
        for path in DATA:
            as_key = (await client.get(path, headers={"x-burnish-key": key})).status_code
            assert (await client.get(path, headers=signed)).status_code == as_key
        asked = await client.post("/v1/chat/completions", json=QUESTION, headers=signed)
        rating = {"completion_id": asked.headers["x-burnish-completion-id"], "rating": "good"}
        rated = await client.post("/v1/feedback", json=rating, headers=signed)
        assert (rated.status_code, rated.json()["given_with"]) == (201, by_key["key"])
        sent = {name.lower() for name, _ in upstream.requests[-1].headers}
        assert not sent & {"cookie", "x-burnish-page"}, "nothing of the sign-in goes upstream"


async def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(client: httpx.AsyncClient) -> None:
    port = client.base_url.port
    body = {"key": " root\n"}  # as pasted
    plain = (await client.post("/burnish/login", json=body)).headers["set-cookie"]
    assert plain.startswith(f"burnish_{port}=")
    assert {"HttpOnly", "Path=/", "SameSite=strict", "Max-Age=2592000"} <= set(plain.split("; "))
    assert "Secure" not in plain
    tls = {"origin": f"https://127.0.0.1:{port}"}  # a reverse proxy with TLS
    assert "Secure" in (await client.post("/burnish/login", headers=tls, json=body)).headers["set-cookie"]
    assert "root" not in plain


async def test_a_cookie_alone_opens_nothing(tmp_path: Path) -> None:
    """A server on another port of the host gets the cookie, another site's form makes the browser send it."""
    async with behind(tmp_path, reply(completion("Tea.")), **BOTH) as (client, upstream):
        signed = await sign_in(client, "root")
        own = client.base_url
        for headers, status in (
            ({}, 401),
            (page(client), 401),
            ({"sec-fetch-site": "none"}, 401),  # the address bar
            ({"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:3000"}, 403),  # another port
            ({"sec-fetch-site": "same-site"}, 403),
            ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),  # an image, a link
            ({"host": f"evil.example:{own.port}"}, 403),  # a rebound name
            (signed | {"origin": "http://127.0.0.1:3000"}, 403),
            (signed | {"sec-fetch-site": "same-site", "origin": "null"}, 403),
        ):
            for path in (*DATA, "/burnish/events"):
                assert (await client.get(path, headers=headers)).status_code == status, (headers, path)
            for path in ("/burnish/train", "/burnish/reset", "/v1/feedback", "/v1/chat/completions"):
                sent = await client.post(path, json={}, headers=headers)
                assert sent.status_code == status, (headers, path)
            login = await client.post("/burnish/login", json={"key": "root"}, headers=headers)
            assert login.status_code == (200 if status == 401 else 403)
        assert upstream.requests == []


async def test_a_proof_in_the_query_counts_for_the_event_stream_alone(client: httpx.AsyncClient) -> None:
    proof = (await sign_in(client, "root"))["x-burnish-page"]
    for path in DATA:
        assert (await client.get(path, params={"proof": proof})).status_code == 401
    for wrong in ("", "x", proof[:-1]):
        assert (await client.get("/burnish/events", params={"proof": wrong})).status_code == 401
    async with client.stream("GET", "/burnish/events", params={"proof": proof}) as answer:
        assert answer.status_code not in (401, 403)


async def test_it_ends_with_its_key_and_holds_after_a_restart(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion()), **BOTH) as (client, _):
        signed, port = await sign_in(client, "root"), client.base_url.port
        cookie = client.cookies[f"burnish_{port}"]

    async def again(**keys: str) -> httpx.Response:
        async with behind(tmp_path, reply(completion()), **keys) as (client, _):
            headers = {"x-burnish-page": signed["x-burnish-page"]}
            headers["cookie"] = f"burnish_{client.base_url.port}={cookie}"
            return await client.get("/burnish/completions", headers=headers)

    assert (await again(**BOTH)).status_code == 200
    for keys in ({"api_key": "caller", "admin_key": "new"}, {"api_key": "caller"}, {"admin_key": "new"}):
        answer = await again(**keys)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "signed_out")
        assert "Sign in again" in answer.json()["error"]["message"]


async def test_wrong_keys_and_other_bodies(client: httpx.AsyncClient) -> None:
    for key in ("mistaken", "roo", "root2", "ROOT", "ключ", "x" * 4096):
        answer = await client.post("/burnish/login", json={"key": key})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "wrong_key")
        assert "set-cookie" not in answer.headers
        assert key not in answer.text
    wrong = [{"key": key} for key in ("", "  ", 7, "x" * 4097)]
    for body in (*wrong, {"key": "root", "more": 1}, {}, []):
        assert (await client.post("/burnish/login", json=body)).status_code == 422, body
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        typed = {"content-type": kind}
        form = await client.post("/burnish/login", content=b'{"key": "root"}', headers=typed)
        assert form.status_code == 415


async def test_without_keys_nobody_needs_to_sign_in(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion())) as (client, _):
        found = await who(client)
        assert (found["key"], found["keys"], found["needs_key"], found["local"]) == (None, [], False, True)
        assert {"read", "steer", "erase"} <= set(found["may"])
        answer = await client.post("/burnish/login", json={"key": "root"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_keys")


async def test_signing_out_takes_the_cookie_away(client: httpx.AsyncClient) -> None:
    signed = await sign_in(client, "root")
    assert (await client.post("/burnish/logout", headers=signed)).json() == {"signed_out": True}
    assert not client.cookies
    ended = await client.get("/burnish/whoami", headers=signed)
    assert (ended.status_code, ended.json()["error"]["code"]) == (401, "signed_out")
    assert (await who(client))["may"] == ["open"]


async def test_where_no_key_is_needed_an_ended_sign_in_is_told(tmp_path: Path) -> None:
    """Else the page would go on, and its user would read that the admin_key is missing."""
    async with behind(tmp_path, reply(completion()), admin_key="root") as (client, _):
        headers = (await sign_in(client, "root")) | {"x-burnish-page": "old"}
        assert (await client.get("/burnish/status", headers=headers)).json()["error"]["code"] == "signed_out"
        assert (await client.get("/burnish/status", headers=page(client))).status_code == 200
