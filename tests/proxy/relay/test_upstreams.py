"""Several upstreams: which one a request goes to, with which key, and what is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from burnish.proxy.http.errors import ConfigError
from tests.support import wires
from tests.support.inprocess import calling, logged
from tests.support.sdks import FORMATS, WEATHER, world
from tests.support.upstream import Received, Upstream, completion, events, reply, stream, upstream
from tests.support.wires import CHAT

NOWHERE = "http://127.0.0.1:9"
REFUSED = b'{"error":  {"message": "Incorrect API key provided: sk-wr***ng."}}'


def asks(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi."}], **more}


@dataclass
class Here:
    client: httpx.AsyncClient
    main: Upstream
    cloud: Upstream

    async def ask(self, model: str, **headers: str) -> httpx.Response:
        return await self.client.post(CHAT, json=asks(model), headers=headers)

    async def named(self, model: str) -> str:
        return (await self.ask(model)).headers["x-burnish-completion-id"]

    async def models(self, **headers: str) -> list[str]:
        listed = await self.client.get("/v1/models", headers=headers)
        return [each["id"] for each in listed.json()["data"]]

    async def told(self) -> dict[str, Any]:
        (told,) = (await self.client.get("/burnish/status")).json()["upstreams"]
        return dict(told)


@asynccontextmanager
async def here(
    tmp_path: Path, *models: str, key: str | None = None, offers: tuple[str, ...] = (), **more: Any
) -> AsyncIterator[Here]:
    """Run burnish before two servers. Each calls itself by its name; the cloud wants ``key`` if that is given."""

    def named(name: str, offered: tuple[str, ...]) -> Any:
        async def script(request: Received, writer: asyncio.StreamWriter) -> None:
            if name == "cloud" and key and request.header("authorization") != f"Bearer {key}":
                await reply(REFUSED, status="401 Unauthorized")(request, writer)
            elif request.target == "/v1/models":
                listed = {"object": "list", "data": [{"id": each} for each in offered]}
                await reply(orjson.dumps(listed))(request, writer)
            else:
                await reply(completion(name, response_id="chatcmpl-0"))(request, writer)

        return script

    scripts = named("main", ("local", "o4-old")), named("cloud", offers)
    async with upstream(scripts[0]) as main, upstream(scripts[1]) as cloud:
        table = {"url": cloud.url, "models": list(models)} | more
        async with calling(tmp_path, upstream=main.url, upstreams={"cloud": table}) as client:
            yield Here(client, main, cloud)


ANSWERS = {
    "cloud": ("gpt-5", "gpt-5:latest", "o4-mini", "o4-"),
    "main": ("o4", "GPT-5", "gpt-5-mini", "local", "default"),
}


@pytest.mark.parametrize(("model", "answers"), [(model, name) for name in ANSWERS for model in ANSWERS[name]])
async def test_the_name_of_the_model_decides(tmp_path: Path, model: str, answers: str) -> None:
    async with here(tmp_path, "gpt-5", "o4-*") as world:
        answer = await world.ask(model)
        (record,) = await logged(world.client)
        asked = {"main": world.main, "cloud": world.cloud}[answers].requests[-1]
        urls = {"main": world.main.url, "cloud": world.cloud.url}
    assert answer.json()["choices"][0]["message"]["content"] == answers
    assert asked.json() == asks({"default": "local", "gpt-5:latest": "gpt-5"}.get(model, model))
    assert record["upstream"] == urls[answers]
    assert record["upstream_table"] == (None if answers == "main" else "cloud")
    assert record["model_served"] == asked.json()["model"]


@pytest.mark.parametrize("claim", ["smollm2", "smol*", "smollm2@base"])
async def test_a_table_that_claims_the_engines_model_is_refused_at_the_start(tmp_path: Path, claim: str):
    table = {"cloud": {"url": NOWHERE, "models": [claim]}}
    with pytest.raises(ConfigError, match=r"upstreams.cloud claims the model 'smollm2(@base)?', which the"):
        async with calling(tmp_path, upstreams=table):
            pass


async def test_a_request_that_names_no_model_goes_to_the_main_one(tmp_path: Path) -> None:
    async with here(tmp_path, "gpt-5") as world:
        await world.client.post(CHAT, json={"messages": [{"role": "user", "content": "Hi."}]})
        await world.client.post("/v1/files", content=b"gpt-5")
        assert [each.target for each in world.main.requests] == [CHAT, "/v1/files"]
        assert not world.cloud.requests


async def test_other_requests_that_name_a_model_go_where_it_is(tmp_path: Path) -> None:
    async with here(tmp_path, "embed-3") as world:
        await world.client.post("/v1/messages/count_tokens", json=asks("embed-3"))
        (passed,) = (await world.client.get("/burnish/passthrough")).json()["data"]
        assert passed["upstream"] == world.cloud.url
        assert [each.target for each in world.cloud.requests] == ["/v1/messages/count_tokens"]


async def test_its_stream_passes_byte_for_byte_and_as_it_comes(tmp_path: Path) -> None:
    hold, parts = asyncio.Event(), events("It rains.")
    body = b'{"stream":true,  "model":"gpt-5","messages":[{"role":"user","content":"Hi."}],"x":1.0}'
    async with upstream(stream(parts, hold=hold)) as cloud:
        table = {"cloud": {"url": cloud.url, "models": ["gpt-5"]}}
        async with (
            calling(tmp_path, upstream=NOWHERE, upstreams=table) as client,
            client.stream("POST", CHAT, content=body) as answer,
        ):
            came = b""
            async for chunk in answer.aiter_bytes():
                came += chunk
                if came == b"".join(parts[:-1]):
                    hold.set()
            assert came == b"".join(parts)
        assert cloud.requests[-1].body == body


@pytest.mark.parametrize(("native", "streamed"), [(True, False), (False, True)])
@pytest.mark.parametrize("name", FORMATS)
async def test_every_format_reaches_it_and_is_rated(tmp_path: Path, name: str, native: bool, streamed: bool):
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        if not native and request.target != CHAT:
            await reply(b'{"detail":"Not Found"}', status="404 Not Found")(request, writer)
        elif request.body == b"[]":
            await reply(b'{"detail":"Field required"}', status="422 No")(request, writer)
        else:
            form = wires.format_at(request.target)
            await wires.answering(form, request.json(), {"content": "Rain."}, "")(request, writer)

    async with upstream(script) as cloud:
        table = {"cloud": {"url": cloud.url, "models": ["mock"], "teaches": True}}
        async with world(tmp_path, upstreams=table) as found:
            got = await found.ask(name, WEATHER, streamed)
            said = {"role": "assistant", "content": got.text}
            history = [*WEATHER, said, {"role": "user", "content": "/rl good"}]
            rated = await found.ask(name, history, streamed)
            (record,) = await found.logged()
            assert not found.upstream.requests
    assert (got.text, rated.text) == ("Rain.", "burnish: rated good – “Rain.” (/rl undo takes it back)")
    assert (record["upstream_table"], record["rating"], record["usable"]) == ("cloud", 1.0, True)


async def test_equal_ids_of_two_upstreams_make_a_rating_ask_which_one_is_meant(tmp_path: Path) -> None:
    async with here(tmp_path, "gpt-5") as world:
        for model in ("local", "gpt-5"):
            await world.ask(model)
        named = {"response_id": "chatcmpl-0", "rating": "good"}
        refused = await world.client.post("/v1/feedback", json=named)
        (first, second) = refused.json()["error"]["candidates"]
        chosen = {"completion_id": first["completion_id"], "rating": "good"}
        assert (await world.client.post("/v1/feedback", json=chosen)).status_code == 201
        records = await logged(world.client)
    assert refused.status_code == 409
    assert {each["completion_id"] for each in (first, second)} == {each["id"] for each in records}


CALLERS_KEYS = [{}, {"x-api-key": "sk-theirs"}]
CALLERS_KEYS += [{"authorization": f"Bearer {key}"} for key in ("burnish", "sk-theirs")]


@pytest.mark.parametrize("given", CALLERS_KEYS)
async def test_its_own_key_takes_the_place_of_the_callers(tmp_path: Path, given: dict[str, str]) -> None:
    async with here(tmp_path, "gpt-5", api_key="sk-ours") as world:
        await world.ask("gpt-5", **given)
        await world.ask("local", **given)
        cloud, main = world.cloud.requests[-1], world.main.requests[-1]
        keys = (cloud.header("authorization"), cloud.header("x-api-key"))
        assert keys == ("Bearer sk-ours", None)
        assert [main.header(name) for name in given] == list(given.values())
        assert "sk-ours" not in str(world.main.requests)


async def test_a_wrong_key_is_its_own_error_unchanged_and_the_status_names_the_table(tmp_path: Path) -> None:
    async with here(tmp_path, "gpt-5", key="sk-right", api_key="sk-wrong") as world:
        answer = await world.ask("gpt-5")
        told = await world.told()
        config = await world.client.get("/burnish/config")
    assert (answer.status_code, answer.content) == (401, REFUSED)
    why = "refuses burnish's api_key in [upstreams.cloud] (GET /v1/models answered 401)"
    assert told["trouble"] == f"{told['url']} {why}"
    assert (told["api_key"], told["models"], told["teaches"]) == (True, ["gpt-5"], False)
    assert "sk-wrong" not in config.text


async def test_the_list_has_the_models_of_all(tmp_path: Path) -> None:
    async with here(tmp_path, "gpt-5", "o4-*", key="k", api_key="k", offers=("o4-mini", "whisper")) as world:
        assert await world.models() == ["default", "local", "o4-mini", "gpt-5"]
        assert await world.models(**{"anthropic-version": "2023-06-01"}) == await world.models()
        one = await world.client.get("/v1/models/o4-mini")
        assert (await world.told())["trouble"] is None
        looks = [each for each in world.cloud.requests if each.target == "/v1/models"]
    assert one.status_code == 200
    assert len(looks) == 1


async def test_a_callers_key_is_not_used_to_ask_for_the_list(tmp_path: Path) -> None:
    async with here(tmp_path, "gpt-5", "o4-*", key="sk-theirs", offers=("o4-mini",)) as world:
        assert await world.models(authorization="Bearer sk-theirs") == ["default", "local", "gpt-5"]
        assert (await world.told())["trouble"] is None  # callers send their keys
        assert "sk-theirs" not in str(world.cloud.requests)


async def test_one_that_is_down_breaks_neither_the_list_nor_the_others(tmp_path: Path) -> None:
    async with here(tmp_path, "gpt-5", url=NOWHERE) as world:
        assert await world.models() == ["default", "local", "o4-old", "gpt-5"]
        told = await world.told()
        assert (await world.ask("local")).status_code == 200
        down = await world.ask("gpt-5")
    assert told["trouble"].startswith(f"[upstreams.cloud]: cannot connect to {NOWHERE}")
    assert (down.status_code, down.json()["error"]["code"]) == (502, "upstream_unreachable")


async def test_the_list_holds_without_the_main_one(tmp_path: Path) -> None:
    async with upstream(reply(b'{"data": [{"id": "gpt-5"}]}')) as cloud:
        table = {"cloud": {"url": cloud.url, "models": ["gpt-5"]}}
        async with calling(tmp_path, upstream=NOWHERE, upstreams=table) as client:
            listed = await client.get("/v1/models")
    assert [each["id"] for each in listed.json()["data"]] == ["gpt-5"]


NOT_TAUGHT = (
    "a further upstream gave the answer: to learn from it, if its terms allow that, set teaches = true in "
    "[upstreams.cloud]"
)


@pytest.mark.parametrize("teaches", [False, True])
async def test_a_rating_says_at_once_whether_it_teaches(tmp_path: Path, teaches: bool) -> None:
    async with here(tmp_path, "gpt-5", teaches=teaches) as world:
        named = await world.named("gpt-5")
        given = {"completion_id": named, "rating": "bad", "comment": "shorter", "correction": "Yes."}
        rated = (await world.client.post("/v1/feedback", json=given)).json()
        (record,) = await logged(world.client)
        (listed,) = (await world.client.get("/v1/feedback")).json()["data"]
        typed = await world.client.post("/burnish/command", json={"text": "/rl good"})
    expected = (True, None) if teaches else (False, NOT_TAUGHT)
    assert [(each["usable"], each["reason"]) for each in (rated, record, listed)] == [expected] * 3
    vain = "" if teaches else f", but nothing will be learnt from it: {NOT_TAUGHT}"
    assert typed.json()["answer"] == f"burnish: rated good{vain} – “cloud” (/rl undo takes it back)"


async def test_earlier_ratings_count_once_it_teaches(tmp_path: Path) -> None:
    for teaches in (False, True):
        async with here(tmp_path, "gpt-5", teaches=teaches) as world:
            if not teaches:
                named = await world.named("gpt-5")
                await world.client.post("/v1/feedback", json={"completion_id": named, "rating": "good"})
            (listed,) = (await world.client.get("/v1/feedback")).json()["data"]
            assert listed["usable"] is teaches


async def test_a_preference_over_an_answer_that_does_not_teach_teaches_nothing(tmp_path: Path) -> None:
    async with here(tmp_path, "gpt-5") as world:
        ours, theirs = await world.named("local"), await world.named("gpt-5")
        pair = {"completion_id": ours, "preferred_over": theirs}
        preferred = (await world.client.post("/v1/feedback", json=pair)).json()
        rated = (await world.client.post("/v1/feedback", json=pair | {"rating": "good"})).json()
    assert (preferred["usable"], preferred["reason"]) == (False, NOT_TAUGHT)
    assert (rated["usable"], rated["reason"]) == (True, f"the preference can't teach: {NOT_TAUGHT}")


async def test_a_rating_of_a_conversation_says_how_many_of_its_answers_teach(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []
    async with here(tmp_path, "gpt-5") as world:
        for model in ("gpt-5", "local"):
            asked.append({"role": "user", "content": f"Hi, {model}."})
            answer = await world.client.post(CHAT, json={"model": model, "messages": asked})
            asked.append(answer.json()["choices"][0]["message"])
        (first, last) = await logged(world.client)
        given = {"completion_id": last["id"], "rating": "good", "scope": "conversation"}
        rated = (await world.client.post("/v1/feedback", json=given)).json()
    assert first["conversation_id"] == last["conversation_id"]
    assert (rated["usable"], rated["reason"]) == (True, f"1 of 2 answers can't teach: {NOT_TAUGHT}")
