"""What counts or sums up a conversation gets it as the model did: without ``/rl``, and for the upstream's own model."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.proxy.log.exchanges import assistant, user
from tests.support.inprocess import behind
from tests.support.upstream import Received, completion, reply

Json = dict[str, Any]
TOLD = "burnish: rated good – “A drink.” (/rl undo takes it back)"
OPEN = [user("What is tea?"), assistant("A drink.")]
NEXT = user("And coffee?")
UNDONE = assistant("burnish: taken back; it isn't rated now – “A drink.”")
HISTORIES = {
    "a command and its answer": [*OPEN, user("/rl good"), assistant(TOLD), NEXT],
    "a command just typed": [*OPEN, user("/rl bad too long")],
    "an answer whose command was dropped": [*OPEN, assistant(TOLD), NEXT],
    "joined with the model's answer": [OPEN[0], assistant(f"A drink.\n\n{TOLD}"), NEXT],
    "two exchanges": [*OPEN, user("/rl good"), assistant(TOLD), user("/rl undo"), UNDONE],
}
ROUTES = {
    "/v1/messages/count_tokens": "messages",
    "/v1/responses/compact": "input",
    "/v1/responses/input_tokens": "input",
    "/openai/v1/responses/compact": "input",
    "/v1beta/models/default:countTokens": "contents",
}


def body_of(route: str, messages: list[Json]) -> Json:
    if ROUTES[route] != "contents":
        return {"model": "default", ROUTES[route]: messages}
    roles = {"user": "user", "assistant": "model"}
    turns = [(roles[each["role"]], each["content"]) for each in messages]
    return {"contents": [{"role": role, "parts": [{"text": text}]} for role, text in turns]}


async def counting(request: Received, writer: Any) -> None:
    listed = b'{"data": [{"id": "their-model"}]}'
    await reply(listed if request.target == "/v1/models" else b'{"input_tokens": 3}')(request, writer)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("route", ROUTES)
async def test_commands_and_our_words_are_left_out(tmp_path: Path, route: str, packed: bool) -> None:
    async with behind(tmp_path, counting) as (client, server):
        for name, history in HISTORIES.items():
            body = orjson.dumps(body_of(route, history))
            headers = {"content-type": "application/json"} | ({"content-encoding": "gzip"} if packed else {})
            sent = gzip.compress(body) if packed else body
            answer = await client.post(route, content=sent, headers=headers)
            assert answer.status_code == 200, (name, answer.text)
            asked = next(each for each in reversed(server.requests) if each.method == "POST")
            came = gzip.decompress(asked.body) if asked.header("content-encoding") else asked.body
            assert b"/rl" not in came and b"burnish" not in came, name
            assert b"What is tea?" in came and b"A drink." in came, name
            assert "their-model" in f"{asked.target} {came!r}", name


@pytest.mark.parametrize("route", [route for route in ROUTES if "default" not in route])
@pytest.mark.parametrize("body", [{}, {"input": 5, "messages": 5, "contents": 5}, {"input": "/rlx"}])
async def test_what_has_no_command_goes_on_as_it_came(tmp_path: Path, route: str, body: Json) -> None:
    async with behind(tmp_path, reply(completion())) as (client, server):
        sent = orjson.dumps({"model": "m"} | body, option=orjson.OPT_INDENT_2)
        await client.post(route, content=sent, headers={"content-type": "application/json"})
        (asked,) = [each for each in server.requests if each.method == "POST"]
        assert asked.body == sent
