"""Which key opens which door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.proxy.access.access import EVERYBODY, NOBODY, Action, Identity, action_at, may, may_steer_in_chat
from burnish.proxy.http.errors import ConfigError
from tests.learner.test_foreign_engine import world
from tests.support.inprocess import behind, calling
from tests.support.upstream import completion, reply
from tests.support.vllm_double import Engine

API, ADMIN = {"x-burnish-key": "caller"}, {"authorization": "Bearer root"}
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "What is tea?"}]}
LOCAL, OPEN = "127.0.0.1", "0.0.0.0"
KEYS = [
    # host, keys that are set, keys that are sent, (may ask, may administer)
    (LOCAL, {}, {}, (True, True)),
    (LOCAL, {"api_key": "caller"}, {}, (False, False)),
    (LOCAL, {"api_key": "caller"}, API, (True, True)),
    (LOCAL, {"admin_key": "root"}, {}, (True, False)),
    (LOCAL, {"admin_key": "root"}, API, (True, False)),
    (LOCAL, {"admin_key": "root"}, ADMIN, (True, True)),
    (LOCAL, {"api_key": "caller", "admin_key": "root"}, {}, (False, False)),
    (LOCAL, {"api_key": "caller", "admin_key": "root"}, API, (True, False)),
    (LOCAL, {"api_key": "caller", "admin_key": "root"}, ADMIN, (True, True)),
    (LOCAL, {"api_key": "caller", "admin_key": "root"}, API | ADMIN, (True, True)),
    (OPEN, {"api_key": "caller"}, {}, (False, False)),
    (OPEN, {"api_key": "caller"}, API, (True, False)),
    (OPEN, {"api_key": "caller", "admin_key": "root"}, API, (True, False)),
    (OPEN, {"api_key": "caller", "admin_key": "root"}, ADMIN, (True, True)),
]  # fmt: skip
FOR_ALL = [("GET", "/healthz"), ("GET", "/metrics"), ("GET", "/v1/models"), ("GET", "/burnish/status")]
FOR_ALL += [("GET", "/v1/feedback/fb_none"), ("DELETE", "/v1/feedback/fb_none"), ("POST", "/v1/feedback")]
FOR_ALL += [("POST", "/burnish/command")]
FOR_ADMINS = [
    ("GET", "/v1/feedback"), ("GET", "/burnish/completions"), ("GET", "/burnish/completions/cmpl_x"),
    ("GET", "/burnish/passthrough"), ("GET", "/burnish/regenerations"), ("GET", "/burnish/raters"),
    ("GET", "/burnish/users/alice"), ("DELETE", "/burnish/users/alice"), ("GET", "/burnish/instructions"),
    ("POST", "/burnish/instructions"), ("PATCH", "/burnish/instructions/x"), ("DELETE", "/burnish/instructions/x"),
    ("GET", "/burnish/runs"), ("GET", "/burnish/runs/x"), ("POST", "/burnish/train"), ("POST", "/burnish/pause"),
    ("POST", "/burnish/resume"), ("GET", "/burnish/adapters"), ("GET", "/burnish/adapters/1"),
    ("POST", "/burnish/adapters"), ("POST", "/burnish/adapters/1/export"), ("POST", "/burnish/adapters/1/promote"),
    ("POST", "/burnish/adapters/promote"), ("POST", "/burnish/adapters/rollback"), ("POST", "/burnish/reset"),
    ("GET", "/burnish/doctor"), ("GET", "/burnish/agents"), ("GET", "/burnish/next"), ("POST", "/burnish/next"),
]  # fmt: skip


@pytest.mark.parametrize(("host", "set_", "sent", "may_"), KEYS)
async def test_doors(
    tmp_path: Path, host: str, set_: dict[str, str], sent: dict[str, str], may_: tuple[bool, bool]
) -> None:
    asks, administers = may_
    async with behind(tmp_path, reply(completion("Tea.")), host=host, **set_) as (client, upstream):
        client.headers.update(sent)
        asked = await client.post("/v1/chat/completions", json=QUESTION)
        assert (asked.status_code == 200) is asks
        values = [value for request in upstream.requests for _, value in request.headers]
        assert not any(key in value for key in ("root", "caller") for value in values)
        for doors, opens in ((FOR_ALL, asks), (FOR_ADMINS, administers)):
            for method, path in doors:
                body = {"text": "/rl status"} if method in ("POST", "PATCH") else None
                answer = await client.request(method, path, json=body)
                assert (answer.status_code not in (401, 403)) is opens, (method, path, answer.text)
        if asks and not administers:
            assert "admin_key" in (await client.get("/burnish/completions")).json()["error"]["message"]


def test_what_nobody_gave_an_action_is_not_for_everybody() -> None:
    assert not may(NOBODY, action_at("GET", "/burnish/new"))
    assert not may(NOBODY, action_at("PUT", "/v1/feedback"))
    assert all(may(EVERYBODY._replace(local=True), action) for action in Action)
    assert not may(EVERYBODY, Action.TRANSFER_ANYWHERE)


@pytest.mark.parametrize(
    ("key", "administers", "user", "owners", "steers"),
    [
        (None, True, "ann", ("ann",), True), (None, True, "bob", ("ann",), False), (None, True, "local", (), False),
        ("none", False, "ann", ("ann",), False), ("api_key", False, "ann", ("ann",), False),
        ("api_key", True, "ann", ("ann",), True), ("api_key", True, "local", (), False),
        ("admin_key", True, "ann", ("ann",), True), ("admin_key", True, "bob", ("ann",), False),
        ("admin_key", True, "local", (), True),
    ],
)  # fmt: skip
def test_steering_by_chat(key: Any, administers: bool, user: str, owners: tuple[str, ...], steers: bool):
    assert may_steer_in_chat(Identity(key, administers), user, owners) is steers


async def type_(client: httpx.AsyncClient, text: str, user: str = "ann", **headers: str) -> str:
    headers |= {"x-burnish-user": user}
    turn = [{"role": "assistant", "content": "Tea."}, {"role": "user", "content": text}]
    body = {"model": "m", "messages": [*QUESTION["messages"], *turn]}
    answer = await client.post("/v1/chat/completions", json=body, headers=headers)
    command = await client.post("/burnish/command", json={"text": text}, headers=headers)
    said = answer.json()["choices"][0]["message"]["content"]
    assert command.json()["answer"][:25] == said[:25], "but for the quotation"
    return str(said)


STEERING = ("/rl train", "/rl promote", "/rl rollback base", "/rl reset yes", "/rl on", "/rl off")


async def test_an_owner_hears_why_nothing_can_be_steered(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion("Tea.")), owners=["ann"]) as (client, _):
        for text in STEERING:
            assert "versions are not swapped, because engine = none" in await type_(client, text)
            assert "Only owners" in await type_(client, text, "bob")


async def test_a_name_does_not_steer_without_the_key(tmp_path: Path, weights: Path) -> None:
    async with world(tmp_path, Engine(), weights, {"owners": ["ann"], "admin_key": "root"}) as client:
        for text in STEERING:
            assert "Only owners" in await type_(client, text)
        assert "starts by itself again" in await type_(client, "/rl on", **ADMIN)
        assert "is live" in await type_(client, "/rl rollback base", **ADMIN)


async def test_a_weight_or_source_that_isnt_allowed(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion("Tea.")), api_key="caller", admin_key="root") as (client, _):
        asked = await client.post("/v1/chat/completions", json=QUESTION, headers=API)
        rating = {"completion_id": asked.headers["x-burnish-completion-id"], "rating": "bad"}
        claims: list[tuple[str, Any, Any]] = [("weight", 0.5, 1.0), ("weight", 1.5, 1.0)]
        claims += [("source", source, "human") for source in ("judge", "implicit", "environment")]
        for field, wrong, right in claims:
            refused = await client.post("/v1/feedback", json=rating | {field: wrong}, headers=API)
            assert (refused.status_code, refused.json()["error"]["param"]) == (403, field)
            for each, key in ((right, API), (wrong, ADMIN)):
                told = await client.post("/v1/feedback", json=rating | {field: each}, headers=key)
                assert told.status_code in (200, 201)


async def test_a_rating_belongs_to_its_key(tmp_path: Path) -> None:
    """Whoever has only the callers' key neither takes back nor replaces what was rated with the other, by any name."""
    async with behind(tmp_path, reply(completion("Tea.")), api_key="caller", admin_key="root") as (client, _):
        asked = await client.post("/v1/chat/completions", json=QUESTION, headers=API)
        name = asked.headers["x-burnish-completion-id"]
        good = {"completion_id": name, "rating": "good"}
        first = (await client.post("/v1/feedback", json=good, headers=ADMIN)).json()
        assert first["given_with"] == "admin_key"
        for method in ("GET", "DELETE"):
            refused = await client.request(method, f"/v1/feedback/{first['id']}", headers=API)
            assert refused.status_code == 403
        assert "no rating to take back" in await type_(client, "/rl undo", "local", **API)
        for number in range(60):
            invented = good | {"rating": "bad", "rater": f"r{number}" if number else "local"}
            assert (await client.post("/v1/feedback", json=invented, headers=API)).status_code == 201
        shown = (await client.get(f"/burnish/completions/{name}", headers=ADMIN)).json()
        assert shown["rating"] == 0, "one voice against another, however many names it has"
        own = (await client.get("/v1/feedback?limit=1", headers=ADMIN)).json()["data"][0]
        assert (await client.delete(f"/v1/feedback/{own['id']}", headers=API)).status_code == 200


async def test_feedback_without_a_content_type(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion("Tea."))) as (client, _):
        await client.post("/v1/chat/completions", json=QUESTION)
        good = b'{"last": true, "rating": "good"}'
        lines = {"origin": "null", "referer": "http://evil.example/", "cookie": "a=b"}
        lines |= {"sec-fetch-site": "none", "sec-fetch-mode": "no-cors", "x-forwarded-for": "10.0.0.9"}
        pages = [{"origin": str(client.base_url)}, *({name: value} for name, value in lines.items())]
        pages += [{"content-type": kind} for kind in ("text/plain", "application/x-www-form-urlencoded")]
        for headers in pages:
            refused = await client.post("/v1/feedback", content=good, headers=headers)
            assert refused.status_code in (403, 415), headers
        assert "content-type: application/json" in refused.json()["error"]["message"]
        assert (await client.post("/v1/feedback", content=good)).status_code == 201
        assert (await client.post("/burnish/command", content=b'{"text": "/rl good"}')).status_code == 415


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"host": OPEN, "admin_key": "root"}, "set api_key"),
        ({"host": OPEN, "api_key": "caller", "allow_management": True}, "allow_management"),
        ({"api_key": "same", "admin_key": "same"}, "must differ"),
    ],
)
async def test_settings_that_would_not_do_what_they_say(tmp_path: Path, flags: dict[str, Any], says: str):
    with pytest.raises(ConfigError, match=says):
        async with calling(tmp_path, **flags):
            pass
