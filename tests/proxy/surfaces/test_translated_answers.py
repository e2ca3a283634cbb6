"""What a chat upstream said reaches clients of other formats as it is remembered, failures as failures."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from burnish.proxy.surfaces import Reply, Translatable
from burnish.proxy.surfaces.chat_reader import ChatReader
from tests.proxy.surfaces.test_answers import ANSWERS, reading
from tests.proxy.surfaces.test_chat_reader import FORMATS

Json = dict[str, Any]
CHAT = {
    name: answer
    for name, answer in ANSWERS["chat"].items()
    if answer["status"] == 200 and answer["path"].endswith("/chat/completions")
}


def translated(surface: Translatable, answer: Json) -> Reply:
    reader = ChatReader(answer["headers"]["content-type"], "")
    writer = surface.writer({}, "cmpl_1", "m")
    sent = [*writer.begin()]
    for pieces in [*(reader.feed(frame.encode()) for frame in answer["frames"]), reader.close()]:
        sent += [event for piece in pieces for event in writer.take(piece)]
    if reader.error:
        sent += writer.fail(reader.error)
    elif reader.ended:
        sent += writer.end(reader.finish_reason, reader.usage)
    return surface.reassemble(sent, writer.content_type, "")


@pytest.mark.parametrize("surface", FORMATS.values(), ids=FORMATS)
def test_it_says_the_same_or_fails(surface: Translatable) -> None:
    wrong: Json = {}
    for name, answer in CHAT.items():
        reply, right = translated(surface, answer), answer["right"]
        row = {"reply": reply.message, "outcome": "", "finish_reason": reply.finish_reason, "params": {}}
        read = reading(row) | {"outcome": "complete" if reply.complete else "cut"}
        expected = {
            "text": right["text"] or None,
            "outcome": right["outcome"],
            "calls": right.get("calls", []),
        }
        if right["outcome"] == "complete" and right["finish"] in ("stop", "content_filter", "length"):
            expected["finish"] = right["finish"]
        read["text"] = read["text"] or None
        if surface.name.startswith(("ollama", "gemini")):  # whose arguments are objects
            expected["calls"] = [[name, _object(text)] for name, text in expected["calls"]]
            read["calls"] = [[name, orjson.loads(text)] for name, text in read["calls"]]
        read["calls"] = [[name or None, arguments] for name, arguments in read["calls"]]
        if differing := {key: [right, read[key]] for key, right in expected.items() if right != read[key]}:
            wrong[name] = differing
    assert not wrong


def _object(text: str) -> Json:
    try:
        return dict(orjson.loads(text))
    except orjson.JSONDecodeError:
        return {"arguments": text}
