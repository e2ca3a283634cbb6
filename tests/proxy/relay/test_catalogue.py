"""What models there are, told to each format's own clients where an upstream lists them in OpenAI's words only."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import anthropic
import ollama
import openai
import orjson
import pytest
from google.genai import errors

from tests.support.inprocess import behind, calling
from tests.support.sdks import World, world
from tests.support.upstream import Received, Script, reply

MODELS = [
    {"id": "qwen", "object": "model", "created": 1760000000, "owned_by": "vllm", "max_model_len": 32768},
    {"id": "org/llama:8b", "object": "model", "created": 0, "owned_by": "vllm"},
]
CLAUDE = {"type": "model", "display_name": "Claude", "created_at": "2026-01-01T00:00:00Z"}
MADE = datetime.fromtimestamp(1760000000, UTC)


@asynccontextmanager
async def asking(tmp_path: Path, *says: Script | dict[str, Any], **flags: Any) -> AsyncIterator[World]:
    async with world(tmp_path, *says, **flags) as here:
        here.models = MODELS
        yield here


async def test_ollamas_clients_find_the_models_with_a_tag_and_may_ask_with_it(tmp_path: Path) -> None:
    async with asking(tmp_path, {"content": "Hello."}, {"content": "Hi."}) as here:
        found = (await here.ollama.list()).models
        assert [each.model for each in found] == ["default:latest", "qwen:latest", "org/llama:8b"]
        assert found[1].modified_at == MADE
        assert len({each.digest[:12] for each in found if each.digest}) == 3
        for name in ("default:latest", "qwen:latest"):
            assert (await here.ollama.chat(name, [{"role": "user", "content": "Hello?"}])).message.content
        assert [asked["model"] for asked in here.asked()] == ["qwen", "qwen"]
        assert (await here.http.get("/api/version")).json() == {"version": "0.33.0"}


async def test_ollamas_clients_see_how_much_a_model_takes(tmp_path: Path) -> None:
    async with asking(tmp_path) as here:
        shown = await here.ollama.show("qwen:latest")
        assert shown.modelinfo == {"general.architecture": "model", "model.context_length": 32768}
        assert shown.capabilities == ["completion", "tools"]
        assert (await here.ollama.show("org/llama:8b")).modelinfo == {"general.architecture": "model"}
        with pytest.raises(ollama.ResponseError) as caught:
            await here.ollama.show("nobody")
        assert caught.value.status_code == 404


@pytest.mark.parametrize("keep_alive", [None, 0, "0s", "5m"])
async def test_a_model_is_loaded_and_freed_without_asking_it(tmp_path: Path, keep_alive: Any) -> None:
    reason = "unload" if keep_alive in (0, "0s") else "load"
    async with asking(tmp_path) as here:
        assert (await here.ollama.generate("qwen", keep_alive=keep_alive)).done_reason == reason
        parts = await here.ollama.chat("qwen", [], stream=True, keep_alive=keep_alive)
        assert [part.done_reason async for part in parts] == [reason]
        assert here.asked() == []
        assert [each["reply"] for each in await here.logged()] == [None, None]
        last = await here.http.post("/v1/feedback", json={"last": True, "rating": "good"})
        assert last.status_code == 404


async def test_googles_clients_find_the_models(tmp_path: Path) -> None:
    async with asking(tmp_path) as here:
        found = [each async for each in await here.google.models.list()]
        assert [each.name for each in found] == ["models/default", "models/qwen", "models/org/llama:8b"]
        assert [each.input_token_limit for each in found] == [None, 32768, None]
        actions = (await here.google.models.get(model="qwen")).supported_actions
        assert actions == ["generateContent", "streamGenerateContent"]
        with pytest.raises(errors.APIError) as caught:
            await here.google.models.get(model="nobody")
        assert caught.value.code == 404


async def test_anthropics_clients_find_the_models(tmp_path: Path) -> None:
    async with asking(tmp_path) as here:
        here.models = [*MODELS, CLAUDE | {"id": "claude", "max_input_tokens": 200000}]
        found = [each async for each in here.anthropic.models.list()]
        assert [each.id for each in found] == ["default", "qwen", "org/llama:8b", "claude"]
        assert [each.display_name for each in found[1:]] == ["qwen", "org/llama:8b", "Claude"]
        assert (found[1].created_at, found[3].max_input_tokens) == (MADE, 200000)
        one = await here.anthropic.models.retrieve("default")
        assert (one.type, one.id) == ("model", "default")
        with pytest.raises(anthropic.NotFoundError):
            await here.anthropic.models.retrieve("nobody")


async def test_openais_clients_find_one_model(tmp_path: Path) -> None:
    async with asking(tmp_path) as here:
        gpt = here.openai
        assert (await gpt.models.retrieve("default")).owned_by == "burnish"
        assert (await gpt.models.retrieve("org/llama:8b")).id == "org/llama:8b"
        with pytest.raises(openai.NotFoundError) as caught:
            await gpt.models.retrieve("nobody")
        assert caught.value.response.json() == {"detail": "Not Found"}


async def test_what_the_upstream_says_itself_passes_through(tmp_path: Path) -> None:
    said = b'{"models": [ ]}'
    async with asking(tmp_path) as here:
        here.unknown = reply(said)
        for path in ("/api/tags", "/api/version", "/v1beta/models", "/v1/models/qwen"):
            assert (await here.http.get(path)).content == said
        assert "/v1/models" not in [request.target for request in here.upstream.requests]
        assert (await here.http.post("/api/show", json={"model": "default:latest"})).content == said
        assert here.upstream.requests[-1].json() == {"model": "qwen"}


async def test_an_upstream_that_lists_none_is_not_spoken_for(tmp_path: Path) -> None:
    async with asking(tmp_path) as here:
        here.models = []
        for path in ("/api/tags", "/v1beta/models", "/v1/models/qwen"):
            answer = await here.http.get(path)
            assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


CLAUDES: list[dict[str, Any]] = [CLAUDE | {"id": f"claude-{number}", "x": number} for number in range(5)]


async def pages(request: Received, writer: asyncio.StreamWriter) -> None:
    """List models as Anthropic does, page by page, if the client says that it is Anthropic's."""
    if request.header("anthropic-version") is None:
        error = {"type": "invalid_request_error", "message": "anthropic-version: needed"}
        missing = orjson.dumps({"type": "error", "error": error})
        await reply(missing, status="400 Bad Request")(request, writer)
        return
    query = parse_qs(request.target.partition("?")[2])
    ids = [each["id"] for each in CLAUDES]
    start = ids.index(query["after_id"][0]) + 1 if "after_id" in query else 0
    page = CLAUDES[start : start + int(query.get("limit", ["20"])[0])]
    more = start + len(page) < len(CLAUDES)
    listed = {"data": page, "has_more": more, "new": [1.5]}
    listed |= {"first_id": page[0]["id"], "last_id": page[-1]["id"]}
    head = "content-type: application/json\r\ncontent-encoding: gzip\r\nrequest-id: req_7\r\n"
    await reply(gzip.compress(orjson.dumps(listed)), headers=head)(request, writer)


async def test_an_upstream_of_anthropics_form_lists_its_models_itself(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.upstream.script = pages
        found = [each async for each in here.anthropic.models.list(limit=2)]
        assert [each.id for each in found] == ["default", *(each["id"] for each in CLAUDES)]
        targets = [each.target for each in here.upstream.requests]
        assert targets == ["/v1/models?limit=2", *(f"/v1/models?limit=2&after_id=claude-{n}" for n in (1, 3))]
        asked = {"anthropic-version": "2023-06-01", "anthropic-beta": "b", "x-api-key": "sk-caller"}
        first = await here.http.get("/v1/models?limit=2&beta=true", headers=asked)
        given = here.upstream.requests[-1]
        assert {name: given.header(name) for name in asked} == asked
        assert given.target == "/v1/models?limit=2&beta=true"
        assert (first.headers["request-id"], "content-encoding" in first.headers) == ("req_7", False)
        listed = first.json()
        assert listed["data"][1:] == CLAUDES[:2]
        ends = {"has_more": True, "first_id": "claude-0", "last_id": "claude-1", "new": [1.5]}
        assert {name: value for name, value in listed.items() if name != "data"} == ends
        refused = await here.http.get("/v1/models")
        assert (refused.status_code, refused.json()["error"]["message"]) == (400, "anthropic-version: needed")


async def test_an_upstream_of_openais_form_lists_its_models_itself(tmp_path: Path) -> None:
    listed = {"object": "list", "data": MODELS, "next": None, "x": {"y": 2}}
    head = "content-type: application/json\r\nx-ratelimit-remaining: 9\r\nopenai-version: 2020-10-01\r\n"
    async with behind(tmp_path, reply(orjson.dumps(listed), headers=head)) as (client, server):
        organization = {"openai-organization": "org-1", "authorization": "Bearer sk-caller"}
        first = await client.get("/v1/models?foo=bar", headers=organization)
        told = [first.headers[name] for name in ("x-ratelimit-remaining", "openai-version")]
        assert told == ["9", "2020-10-01"]
        assert server.requests[0].target == "/v1/models?foo=bar"
        assert {name: server.requests[0].header(name) for name in organization} == organization
        assert {**first.json(), "data": first.json()["data"][1:]} == listed
        assert first.json()["data"][0]["id"] == "default"
        further = await client.get("/v1/models?after=qwen")
        assert further.json() == listed
        assert (await client.get("/burnish/passthrough")).json()["data"] == []


async def test_an_answer_that_lists_no_models_is_passed_on(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b"")) as (client, server):
        answers = ((b'{"models":[]}', "200 OK"), (b"<html>", "200 OK"), (b'{"error":{}}', "403 No"))
        for content, status in answers:
            server.script = reply(content, status=status)
            answer = await client.get("/v1/models")
            assert (answer.content, answer.status_code) == (content, int(status[:3]))
        server.script = reply(b'{"detail":"no list here"}', status="404 Not Found")
        told = await client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
        assert (told.status_code, told.json()["type"]) == (404, "error")
        assert told.json()["error"] == {"type": "not_found_error", "message": "no list here"}


async def test_our_key_lists_anthropics_models_as_anthropic_wants_it(tmp_path: Path) -> None:
    async with behind(tmp_path, pages, upstream_api_key="sk-ours") as (client, server):
        answer = await client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
        assert answer.json()["data"][0]["id"] == "default"
        assert server.requests[0].header("x-api-key") == "sk-ours"


async def test_the_embedded_engines_models_are_burnishs_own(tmp_path: Path) -> None:
    async with calling(tmp_path) as client:
        for headers in ({}, {"anthropic-version": "2023-06-01"}):
            listed = (await client.get("/v1/models", headers=headers)).json()
            assert [each["id"] for each in listed["data"]] == ["default", "smollm2", "smollm2@base"]
