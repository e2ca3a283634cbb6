"""Histories that the server holds: what passed through burnish is looked up, and what didn't is marked.

``AiSdk`` sends what ``createOpenAI()('model')`` of the AI SDK sends by default: of its own answers only the ids of
their items, as its stream named them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.inprocess import behind, logged
from tests.support.responses import call, events, message, reasoning, response, sse
from tests.support.upstream import Received, Upstream, in_turn, reply, stream

Json = dict[str, Any]

HELD = "the history is with the upstream"
ADD = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
KNOWN = "msg_known"


class Server:
    """Numbers its items, as OpenAI does, and answers with what it is told to."""

    def __init__(self, *says: list[Json], drifts: bool = False) -> None:
        """``drifts``: the last event names the items otherwise than those before it, as some gateways do."""
        self.says = list(says)
        self._drifts = drifts
        self._numbers = count()

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        said = self.says.pop(0) if self.says else [message("Yes.")]
        items = [item | {"id": f"{item['id'].partition('_')[0]}_{next(self._numbers):030x}"} for item in said]
        body = response(*items, response_id=f"resp_{next(self._numbers):030x}")
        told = events(body)
        if self._drifts:
            last = body | {"output": [item | {"id": f"other_{next(self._numbers)}"} for item in items]}
            told[-1] = sse("response.completed", {"response": last})
        script = stream(told) if request.json().get("stream") else reply(orjson.dumps(body))
        await script(request, writer)


@dataclass
class AiSdk:
    """A session of the AI SDK: its history, as it would send it."""

    http: httpx.AsyncClient
    history: list[Json] = field(default_factory=list)
    keeps: tuple[str, ...] = ("reasoning", "message", "function_call")
    """Kinds of items that it names; others it forgets."""

    async def say(self, text: str, **more: Any) -> str:
        self.history.append({"role": "user", "content": [{"type": "input_text", "text": text}]})
        return await self.go_on(**more)

    async def go_on(self, **more: Any) -> str:
        body = {"model": "m", "input": self.history, "stream": True, "store": True, **more}
        answer = await self.http.post("/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        told = [orjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        items = [each["item"] for each in told if each["type"] == "response.output_item.done"]
        self.history += [
            {"type": "item_reference", "id": item["id"]} for item in items if item["type"] in self.keeps
        ]
        calls = [item for item in items if item["type"] == "function_call"]
        for each in calls:
            result = {"type": "function_call_output", "call_id": each["call_id"], "output": "3"}
            self.history.append(result)
        if calls:
            return await self.go_on(**more)
        texts = (part["text"] for item in items if item["type"] == "message" for part in item["content"])
        return "".join(texts)


async def rated(http: httpx.AsyncClient, completion_id: str) -> tuple[bool, str | None]:
    said = {"completion_id": completion_id, "rating": "good"}
    answer = (await http.post("/v1/feedback", json=said)).json()
    return answer["usable"], answer["reason"]


async def obstacles(http: httpx.AsyncClient) -> list[str | None]:
    """Return why rated answers aren't exported."""
    return [each["obstacle"] for each in (await http.get("/burnish/rated")).json()["data"]]


def contents(record: Json) -> list[Any]:
    return [each.get("content") for each in record["messages"]]


@asynccontextmanager
async def world(
    tmp_path: Path, *says: list[Json], drifts: bool = False
) -> AsyncIterator[tuple[httpx.AsyncClient, Upstream]]:
    async with behind(tmp_path, Server(*says, drifts=drifts)) as (http, upstream):
        yield http, upstream


@pytest.mark.parametrize("drifts", [False, True], ids=["one id", "another id at the end"])
async def test_the_default_session_of_the_ai_sdk_rates(tmp_path: Path, drifts: bool) -> None:
    thought_call = [reasoning("I add.", name="rs_1"), call("add", call_id="call_7")]
    said = [thought_call, [message("It is 3.")], [message("And 4.")], [message("Bye.")]]
    async with world(tmp_path, *said, drifts=drifts) as (http, upstream):
        sdk = AiSdk(http)
        assert await sdk.say("Add 1 and 2.", tools=[ADD]) == "It is 3."
        assert (await sdk.say("/rl good")).startswith("burnish: rated good")
        assert await sdk.say("And 2 and 2?") == "And 4."
        assert (await sdk.say("/rl bad too short")).startswith(
            "burnish: rated bad with your comment – “And 4.”"
        )
        assert (await sdk.say("/rl undo")).startswith("burnish: taken back")
        assert (await sdk.say("/rl undo")).startswith(
            "burnish: taken back; no rating counts for it now – “It is 3.”"
        )
        assert (await sdk.say("/rl good")).startswith("burnish: rated good – “And 4.”")
        assert await sdk.say("Bye.") == "Bye."
        records = await logged(http)
        assert await rated(http, records[-1]["id"]) == (True, None)
        assert set(await obstacles(http)) == {None}
        sent = upstream.requests[-1].json()["input"]
    history = ["Add 1 and 2.", None, "3", "It is 3.", "And 2 and 2?", "And 4.", "Bye."]
    assert [text_of(each) for each in records[-1]["messages"]] == history
    assert records[-1]["messages"][1]["tool_calls"][0]["id"] == "call_7"
    assert len({each["conversation_id"] for each in records}) == 1
    assert "/rl" not in str(sent)
    assert sum(each.get("type") == "item_reference" for each in sent) == 4


def text_of(message: Json) -> Any:
    content = message.get("content")
    return content[0]["text"] if isinstance(content, list) else content


async def test_an_item_may_be_named_without_its_type_and_beside_whole_ones(tmp_path: Path) -> None:
    async with world(tmp_path, [message("Hello.")], [call("add", call_id="call_1")]) as (http, _):
        sdk = AiSdk(http, keeps=("message",))
        await sdk.say("Hi.")
        (first,) = await logged(http)
        named = {"id": sdk.history[-1]["id"]}
        added = {"role": "user", "content": "Add."}
        whole = call("add", call_id="call_1")
        body: Json = {"model": "m", "input": [*sdk.history[:-1], named, added]}
        called = (await http.post("/v1/responses", json=body)).json()
        result = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
        # The reference and the call itself say the same.
        reference = {"type": "item_reference", "id": called["output"][0]["id"]}
        body["input"] += [reference, {**whole, "id": None}, result]
        await http.post("/v1/responses", json=body)
        # A text that no log has stands beside a known item: what comes where is unknown.
        body["input"] = [named, {"role": "assistant", "content": "Written by hand."}, added]
        await http.post("/v1/responses", json=body)
        records = await logged(http)
        usable = [await rated(http, each["id"]) for each in records]
    assert first["reply"]["content"] == "Hello."
    assert contents(records[2]) == ["Hi.", "Hello.", "Add.", None, "3"]
    assert usable == [(True, None)] * 3 + [(False, HELD)]


UNKNOWN: dict[str, Json] = {
    "an item that did not pass": {
        "input": [{"type": "item_reference", "id": "msg_x"}, {"role": "user", "content": "More."}]
    },
    "an item and one that passed": {
        "input": [
            {"type": "item_reference", "id": KNOWN},
            {"type": "item_reference", "id": "msg_x"},
            {"role": "user", "content": "More."},
        ]
    },
    "a response that did not pass": {"input": "More.", "previous_response_id": "resp_x"},
    "a response before instructions": {
        "input": "More.", "previous_response_id": "resp_x", "instructions": "Be brief."
    },
    "a conversation": {"input": "More.", "conversation": "conv_x"},
    "a conversation, as an object": {"input": "More.", "conversation": {"id": "conv_x"}},
    "a stored prompt": {"input": "More.", "prompt": {"id": "pmpt_x", "variables": {"city": "Rome"}}},
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
async def test_what_only_the_upstream_knows_is_neither_exported_nor_taught(tmp_path: Path, name: str) -> None:
    async with world(tmp_path, [message("Hello.")], [message("More.")], [message("On.")]) as (http, _):
        first = (await http.post("/v1/responses", json={"model": "m", "input": "Hi."})).json()
        body = orjson.loads(
            orjson.dumps(UNKNOWN[name]).replace(KNOWN.encode(), first["output"][0]["id"].encode())
        )
        second = await http.post("/v1/responses", json={"model": "m", **body})
        # What goes on from it lacks the same.
        third = await http.post(
            "/v1/responses", json={"model": "m", "input": "On.", "previous_response_id": second.json()["id"]}
        )
        for answer in (second, third):
            assert await rated(http, answer.headers["x-burnish-completion-id"]) == (False, HELD)
        assert await obstacles(http) == [HELD, HELD]
        records = await logged(http)
    assert records[1]["messages"][-1]["content"] == "More.", "what is known stays"


async def test_a_cache_at_google_is_held_there(tmp_path: Path) -> None:
    answer = {"candidates": [{"content": {"parts": [{"text": "North."}]}, "finishReason": "STOP"}]}
    async with behind(tmp_path, reply(orjson.dumps(answer))) as (http, _):
        body = {"contents": [{"parts": [{"text": "Where?"}]}], "cachedContent": "cachedContents/x"}
        made = await http.post("/v1beta/models/m:generateContent", json=body)
        assert await rated(http, made.headers["x-burnish-completion-id"]) == (False, HELD)


async def test_an_id_of_several_items_and_one_of_another_caller_name_nothing(tmp_path: Path) -> None:
    """Some servers number the items of each answer anew."""
    said = [message("Yes."), message("Yes."), message("Sure.", name="msg_2"), message("No."), message("Hm.")]
    answers = [reply(orjson.dumps(response(each))) for each in said]
    async with behind(tmp_path, in_turn(*answers)) as (http, _):
        named = [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "Sure?"}]
        usable = []
        for question in ("Tea?", "Tea?", named, "Coffee?", named):
            made = await http.post("/v1/responses", json={"model": "m", "input": question})
            usable.append(await rated(http, made.headers["x-burnish-completion-id"]))
        assert usable == [(True, None)] * 4 + [(False, HELD)], "a cache repeats an answer, with its ids"
    async with world(tmp_path / "other", [message("Secret.")]) as (http, _):
        eve = {"x-burnish-user": "eve"}
        first = (await http.post("/v1/responses", json={"model": "m", "input": "Hi."}, headers=eve)).json()
        named[0]["id"] = first["output"][0]["id"]
        made = await http.post("/v1/responses", json={"model": "m", "input": named})
        assert await rated(http, made.headers["x-burnish-completion-id"]) == (False, HELD)
        assert "Secret." not in str((await logged(http))[-1]["messages"])


@pytest.mark.parametrize("body", [UNKNOWN["a conversation"], UNKNOWN["an item that did not pass"]])
async def test_a_command_there_says_who_holds_the_conversation(tmp_path: Path, body: Json) -> None:
    async with world(tmp_path) as (http, upstream):
        await http.post("/v1/responses", json={"model": "m", **body})
        items = body["input"][:-1] if isinstance(body["input"], list) else []
        command = {**body, "input": [*items, {"role": "user", "content": "/rl good"}]}
        said = (await http.post("/v1/responses", json={"model": "m", **command})).json()
        assert len(upstream.requests) == 1
    text = said["output"][0]["content"][0]["text"]
    assert text.startswith("burnish: nothing was rated: the server holds this conversation")


async def test_items_are_erased_with_their_answer(tmp_path: Path) -> None:
    async with world(tmp_path, [message("Hello.")], [message("Yes.")]) as (http, _):
        sdk = AiSdk(http)
        await sdk.say("Hi.")
        assert (await http.delete("/burnish/users/local")).status_code == 200
        await sdk.say("Well?")
        (record,) = await logged(http)
        assert await rated(http, record["id"]) == (False, HELD)
