"""Why a rating can't teach is true of the answer: said only of media, and each other obstacle has its own reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from burnish.gate.replies import text_of
from burnish.proxy.surfaces import SURFACES
from burnish.proxy.surfaces.base import Translatable
from tests.support.chat_wire import whole
from tests.support.inprocess import behind
from tests.support.responses import message, response
from tests.support.upstream import reply, stream

Json = dict[str, Any]

MEDIA = "there are images, audio or files in the conversation"
HELD = "the history is with the upstream"
PROVIDERS = "the answer holds calls or results of tools that the provider runs"
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
SEALED_THOUGHT = {"type": "redacted_thinking", "data": "Eo"}
CAPE = "On the north cape."
SEARCH_RESULT = {
    "type": "search_result",
    "source": "wiki/12",
    "title": "Lighthouses",
    "content": [{"type": "text", "text": "The lighthouse stands on the north cape."}],
}
SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://e.example", "encrypted_content": "Eo"}],
}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def messages(*history: tuple[str, Any], answer: list[Json] | None = None) -> tuple[str, Json, Json]:
    """Return path, request and answer of Anthropic's format."""
    said = [{"role": role, "content": content} for role, content in history]
    answered = {
        "id": "msg_1", "type": "message", "role": "assistant", "content": answer or [text(CAPE)],
        "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 5},
    }  # fmt: skip
    return "/v1/messages", {"max_tokens": 99, "messages": said}, answered


def tool_result(*content: Json) -> list[tuple[str, Any]]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "stop"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": list(content)}
    return [("user", "Stop the watcher."), ("assistant", [call]), ("user", [result])]


def chat(answer: Json, *history: Json) -> tuple[str, Json, Json]:
    asked = [*history, {"role": "user", "content": "Where?"}]
    return "/v1/chat/completions", {"messages": asked}, whole(answer)


def responses(*items: Any, answer: tuple[Json, ...] = (message(CAPE),)) -> tuple[str, Json, Json]:
    return "/v1/responses", {"input": [*items, {"role": "user", "content": "Where?"}]}, response(*answer)


def completions(**asked: Any) -> tuple[str, Json, Json]:
    choice = {"index": 0, "text": "Once upon a time", "finish_reason": "stop"}
    return "/v1/completions", {"prompt": "Once", **asked}, {"id": "c", "choices": [choice]}


CASES: dict[str, tuple[tuple[str, Json, Json], str | None]] = {
    # A block of text, in whatever clothes, silences nothing.
    "tool reference": (messages(*tool_result({"type": "tool_reference", "tool_name": "TaskStop"})), None),
    "tools that a system message adds": (
        messages(
            ("user", "Hello."), ("assistant", "Hello."), ("system", []),
            ("system", [text("A tool was added."), {"type": "tool_addition", "tool": {"name": "Grep"}}]),
            ("user", "Where?"),
        ),
        None,
    ),
    "search result": (messages(("user", [SEARCH_RESULT, text("Where?")])), None),
    "search result of a tool": (messages(*tool_result(SEARCH_RESULT)), None),
    "document of text": (
        messages(("user", [{"type": "document", "source": {"type": "text", "data": "North."}}, text("Where?")])),
        None,
    ),
    "thought in the history": (
        messages(("user", "Hello."), ("assistant", [SEALED_THOUGHT, text("Hi.")]), ("user", "?")),
        None,
    ),
    "thought as a part of chat": (
        chat(
            {"content": CAPE},
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": [{"type": "reasoning", "text": "Hm."}, text("Hello.")]},
        ),
        None,
    ),
    "thought as a part of the reply": (
        chat({"content": [{"type": "thinking", "thinking": [text("Hm.")]}, text(CAPE)]}), None
    ),
    "search of the provider, earlier": (
        messages(("user", "Where?"), ("assistant", [SERVER_CALL, FOUND, text(CAPE)]), ("user", "Sure?")), None
    ),
    # What the provider's tools did isn't the model's.
    "search of the provider": (messages(("user", "Where?"), answer=[SERVER_CALL, FOUND, text(CAPE)]), PROVIDERS),
    "paused for the provider": (messages(("user", "?"), answer=[text("Let me look."), SERVER_CALL]), PROVIDERS),
    "search of OpenAI": (
        responses(answer=({"type": "web_search_call", "id": "ws_1", "status": "completed"}, message(CAPE))),
        PROVIDERS,
    ),
    # Media, wherever they stand.
    "image in the reply": (
        chat({"content": "Here it is.", "images": [{"type": "image_url", "image_url": {"url": "data:,"}}]}), MEDIA
    ),
    "image that OpenAI made": (
        responses(answer=({"type": "image_generation_call", "id": "ig_1", "result": "iVBO"}, message(CAPE))), MEDIA
    ),
    "image of a tool": (messages(*tool_result(IMAGE)), MEDIA),
    "image in a document": (
        messages(
            ("user", [{"type": "document", "source": {"type": "content", "content": [IMAGE]}}])
        ),
        MEDIA,
    ),
    "audio of an earlier answer": (
        chat({"content": CAPE}, {"role": "assistant", "audio": {"id": "audio_1"}}), MEDIA
    ),
    "audio that only says again what the text says": (
        chat({"content": CAPE, "audio": {"id": "audio_1", "transcript": CAPE}}), None
    ),
    "audio beside text": (chat({"content": CAPE, "audio": {"id": "audio_1", "data": "AAAA"}}), MEDIA),
    "a file": (
        messages(("user", [{"type": "document", "source": {"type": "base64", "data": "JVBE"}}, text("?")])), MEDIA
    ),
    # Text prompts that are no chat.
    "echo": (completions(echo=True), "the answer repeats its prompt (echo)"),
    "no echo": (completions(echo=False), None),
    "token ids": (completions(prompt=[464, 3139]), "the prompt is token ids, not text"),
    "suffix": (completions(suffix="The end."), "the answer fills the gap before a suffix, so it answers no message"),
    # What only the upstream can read.
    "sealed history": (responses({"type": "compaction", "id": "cmp_1", "encrypted_content": "Eo"}), HELD),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_the_reason_of_a_rating_is_true(tmp_path: Path, name: str) -> None:
    (path, asked, answered), reason = CASES[name]
    async with behind(tmp_path, reply(orjson.dumps(answered))) as (http, _):
        answer = await http.post(path, json={"model": "m", **asked})
        assert answer.json() == answered
        rating = {"completion_id": answer.headers["x-burnish-completion-id"], "rating": "good"}
        rated = (await http.post("/v1/feedback", json=rating)).json()
        assert (rated["usable"], rated["reason"]) == (reason is None, reason)
        (exported,) = (await http.get("/burnish/rated")).json()["data"]
        assert exported["obstacle"] == reason


async def test_an_image_that_streams_beside_the_text_is_noted(tmp_path: Path) -> None:
    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: %b\n\n" % orjson.dumps({"id": "gen-7", "choices": [choice]})

    image = {"type": "image_url", "index": 0, "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    came = [chunk({"content": "Here it is."}), chunk({"content": "", "images": [image]}), chunk({}, "stop")]
    async with behind(tmp_path, stream([*came, b"data: [DONE]\n\n"])) as (http, _):
        asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Draw."}]}
        answer = await http.post("/v1/chat/completions", json=asked)
        rating = {"completion_id": answer.headers["x-burnish-completion-id"], "rating": "good"}
        rated = (await http.post("/v1/feedback", json=rating)).json()
    assert (rated["usable"], rated["reason"]) == (False, MEDIA)


@pytest.mark.parametrize(
    "name", [name for name, ((path, *_), why) in CASES.items() if path == "/v1/messages" and not why]
)
def test_a_block_teaches_as_the_text_that_an_engine_gets(name: str) -> None:
    (_, asked, _), _ = CASES[name]
    surface = SURFACES["messages"]
    assert isinstance(surface, Translatable)
    request = surface.read({"model": "m", **asked})
    translated = surface.as_chat(asked, request)["messages"]
    texts = {str(each["content"]) for each in translated if each["content"]}
    assert {text_of(each) for each in request.messages if text_of(each)} == texts
