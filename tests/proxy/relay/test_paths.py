"""Completions under other paths than the usual ones: of providers, of gateways, of base URLs without a version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from tests.support.dialects import DIALECTS, Answer, user
from tests.support.inprocess import behind, calling, logged
from tests.support.sdks import world
from tests.support.upstream import reply

Json = dict[str, Any]
PATHS_OF = {
    "chat": """/chat/completions /openai/v1/chat/completions /api/v1/chat/completions /api/chat/completions
    /openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21 /v1beta/openai/chat/completions
    /v1/chat/completions/ //v1/chat/completions /v2/0a1b2c3d/openai/v1/chat/completions""",
    "completions": "/completions /openai/deployments/gpt-4o/completions /beta/completions//",
    "responses": "/responses /openai/responses?api-version=preview /openai/v1/responses",
    "messages": "/messages /anthropic/v1/messages /apps/anthropic/v1/messages?beta=true /v1//messages/",
    "ollama_chat": "/ollama/api/chat",
    "ollama_generate": "/api/generate/",
    "gemini": """/gemini/v1beta/models/m:generateContent
    /v1beta1/projects/p-1/locations/eu/publishers/google/models/m:generateContent""",
}
PATHS = [(name, path) for name, paths in PATHS_OF.items() for path in paths.split()]
OTHER_APIS: list[tuple[str, Json]] = [
    ("/v1/threads/thread_abc123/messages", {"role": "user", "content": "hi", "messages": []}),
    ("/v1/threads/abc/messages", {"role": "user", "content": "hi", "messages": []}),
    ("/v1/conversations/conv_1/items", {"items": []}),
    ("/v1/batches", {"endpoint": "/v1/chat/completions"}),
    ("/v1/messages/batches", {"requests": []}),
    ("/v1/chat/completions/chatcmpl-1", {"metadata": {}}),
    ("/v1/responses/resp_1/cancel", {}),
    ("/v1/responses/compact", {"input": "hi"}),
    ("/forms/f_17/responses", {"input": "hi"}),
    ("/v1/embeddings", {"input": "hi"}),
]


def shape(error: Json) -> str:
    if isinstance(error["error"], str):
        return "ollama"
    return (
        "messages" if error.get("type") == "error" else "gemini" if "status" in error["error"] else "openai"
    )


async def test_an_answer_is_logged_and_rated_wherever_it_is_asked_for(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b"")) as (client, server):
        for name, path in PATHS:
            dialect, url = DIALECTS[name], f"{client.base_url}".rstrip("/") + path
            server.script = reply(orjson.dumps(dialect.answer(Answer("Rain."))))
            client.headers["x-burnish-user"] = path
            answer = await client.post(url, json=dialect.body((user("Weather?"),)))
            record = (await logged(client))[-1]
            assert answer.headers["x-burnish-completion-id"] == record["id"], path
            assert (record["surface"], record["reply"]["content"]) == (name, "Rain."), path
            if dialect.history:
                history = (user("Weather?"), Answer("Rain."), user("/rl good"))
                rated = await client.post(url, json=dialect.body(history))
                assert dialect.says(rated.json()).startswith("burnish: rated good – “Rain.”"), path
                assert (await logged(client))[-1]["rating"] == 1.0, path
    assert [each.target for each in server.requests] == [path for _, path in PATHS]


async def test_what_belongs_to_another_api_is_passed_on(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b"{}")) as (client, server):
        for path, body in OTHER_APIS:
            answer = await client.post(path, json=body)
            assert (answer.content, "x-burnish-completion-id" in answer.headers) == (b"{}", False), path
            assert (server.requests[-1].target, server.requests[-1].json()) == (path, body)
        passed = (await client.get("/burnish/passthrough")).json()["data"]
        assert await logged(client) == []
    assert [each["path"] for each in passed[::-1]] == [path for path, _ in OTHER_APIS]
    assert {(each["outcome"], each["error"]) for each in passed} == {("complete", None)}


BARE = ("/chat/completions", "/x/completions", "/responses", "/messages", "/y/api/chat", "/y/api/generate")


async def test_a_body_without_the_fields_of_the_format_is_passed_on_and_noted(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b"{}")) as (client, server):
        for path in BARE:
            assert (await client.post(path, content=b'{"a": 1}')).content == b"{}"
            assert (server.requests[-1].target, server.requests[-1].body) == (path, b'{"a": 1}')
        passed = (await client.get("/burnish/passthrough")).json()["data"]
        assert await logged(client) == []
    assert [(each["outcome"], each["status"]) for each in passed] == [("complete", 200)] * len(BARE)
    assert all("not logged as a completion" in each["error"] for each in passed)


async def test_an_error_has_the_form_of_the_ending(tmp_path: Path) -> None:
    forms = {"messages": "messages", "gemini": "gemini", "ollama_chat": "ollama", "ollama_generate": "ollama"}
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as client:
        for name, path in PATHS:
            url = f"{client.base_url}".rstrip("/") + path
            down = await client.post(url, json=DIALECTS[name].body((user("Weather?"),)))
            strange = await client.post(url, json={}, headers={"origin": "http://evil.example"})
            assert (down.status_code, strange.status_code) == (502, 403)
            assert [shape(each.json()) for each in (down, strange)] == [forms.get(name, "openai")] * 2, path
        for path, form in (
            ("/v1/threads/thread_1/messages", "openai"),
            ("/v1/messages/batches", "messages"),
            ("/v1beta/files", "gemini"),
            ("/v1beta/openai/embeddings", "openai"),
            ("/api/embed", "ollama"),
            ("/api/v1/embeddings", "openai"),
        ):
            assert shape((await client.post(path, json={})).json()) == form, path
        listed = await client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
        assert (listed.status_code, shape(listed.json())) == (502, "messages")


TRANSLATED = [
    ("messages", "/anthropic/v1/messages"),
    ("responses", "/openai/v1/responses"),
    ("ollama_chat", "/ollama/api/chat"),
    ("gemini", "/gemini/v1beta/models/mock:generateContent"),
]


async def test_an_upstream_that_only_knows_chat_is_asked_in_chat(tmp_path: Path) -> None:
    async with world(tmp_path, *[{"content": "Rain."}] * 2 * len(TRANSLATED)) as here:
        for name, path in TRANSLATED:
            for _ in range(2):
                before = len(here.upstream.requests)
                got = await here.http.post(path, json=DIALECTS[name].body((user("Weather?"),)))
                assert DIALECTS[name].says(got.json()) == "Rain.", path
            assert len(here.upstream.requests) == before + 1, "what it lacks is remembered"
        surfaces = [each["surface"] for each in await here.logged()]
    assert surfaces == [name for name, _ in TRANSLATED for _ in range(2)]


async def test_a_format_that_is_lacking_under_a_prefix_is_not_lacking_elsewhere(tmp_path: Path) -> None:
    asked = DIALECTS["messages"].body((user("Weather?"),))
    async with world(tmp_path, *[{"content": "Rain."}] * 2) as here:
        assert (await here.http.post("/anthropic/v1/messages", json=asked)).status_code == 200
        here.native = True
        assert (await here.http.post("/v1/messages", json=asked)).status_code == 200
        assert here.upstream.requests[-1].target == "/v1/messages"


async def test_the_model_of_a_deployment_is_in_its_path(tmp_path: Path) -> None:
    asked = {"messages": [{"role": "user", "content": "Weather?"}]}
    script = reply(orjson.dumps(DIALECTS["chat"].answer(Answer("Rain."))))
    async with behind(tmp_path, script, model="their model") as (client, server):
        for name in ("gpt-4o", "default"):
            await client.post(f"/openai/deployments/{name}/chat/completions?api-version=1", json=asked)
        records = await logged(client)
    assert [each.target for each in server.requests] == [
        f"/openai/deployments/{name}/chat/completions?api-version=1" for name in ("gpt-4o", "their%20model")
    ]
    assert [each.json() for each in server.requests] == [asked] * 2
    models = [(each["model_asked"], each["model_served"]) for each in records]
    assert models == [("gpt-4o", "gpt-4o"), ("default", "their model")]


async def test_the_embedded_engine_answers_under_any_prefix(tmp_path: Path) -> None:
    paths = [
        ("chat", "/chat/completions"),
        ("chat", "/openai/deployments/default/chat/completions"),
        ("completions", "/completions"),
        ("responses", "/openai/v1/responses"),
        ("messages", "/anthropic/v1/messages/"),
        ("ollama_chat", "/ollama/api/chat"),
        ("gemini", "/x/v1beta/models/default:generateContent"),
    ]
    limits: Json = {
        "max_tokens": 4,
        "max_output_tokens": 4,
        "options": {"num_predict": 4, "temperature": 0},
        "generationConfig": {"maxOutputTokens": 4, "temperature": 0},
        "temperature": 0,  # drawn at random, the end of the text can come first
        "model": "default",
    }
    async with calling(tmp_path) as client:
        for name, path in paths:
            asked = DIALECTS[name].body((user("Tell me of the rain."),)) | limits
            got = await client.post(path, json=asked)
            assert got.status_code == 200, got.text
            record = (await logged(client))[-1]
            assert (record["surface"], record["adapter_version"]) == (name, 0)
            assert record["reply"]["content"] == DIALECTS[name].says(got.json()) != ""
