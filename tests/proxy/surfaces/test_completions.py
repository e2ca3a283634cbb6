"""Text completions: what is read, what is put together from the wire, what is answered locally."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from burnish.proxy.rl.commands import find_command
from burnish.proxy.surfaces import Completions
from tests.support.chat_wire import DONE, USAGE, data

completions = Completions()


def whole(*texts: str) -> bytes:
    choices = [{"index": index, "text": text, "finish_reason": "stop"} for index, text in enumerate(texts)]
    return orjson.dumps({"id": "cmpl-1", "object": "text_completion", "choices": choices, "usage": USAGE})


def events(*pieces: str) -> list[bytes]:
    told = [{"text": piece, "index": 0, "finish_reason": None} for piece in pieces]
    told.append({"text": "", "index": 0, "finish_reason": "stop"})
    chunks = [{"id": "cmpl-1", "object": "text_completion", "choices": [choice]} for choice in told]
    return [*map(data, chunks), DONE]


def test_a_prompt_is_a_message_of_the_users():
    request = completions.read({"model": "m", "prompt": "Once", "max_tokens": 5, "stream": True})
    assert request.messages == [{"role": "user", "content": "Once"}]
    assert (request.model, request.stream) == ("m", True)
    assert request.params == {"max_tokens": 5, "stream": True}


@pytest.mark.parametrize(
    ("prompt", "contents"),
    [
        (None, []),
        (["Once"], ["Once"]),
        (["Once", "Twice"], ["Once", "Twice"]),
        ([1, 2], [[{"type": "tokens", "tokens": [1, 2]}]]),
        ([[1, 2], [3]], [[{"type": "tokens", "tokens": [1, 2]}], [{"type": "tokens", "tokens": [3]}]]),
    ],
)
def test_each_prompt_is_a_message(prompt: Any, contents: list[Any]):
    messages = completions.read({"prompt": prompt}).messages
    assert [message["content"] for message in messages] == contents


@pytest.mark.parametrize(
    ("prompt", "command"), [("/rl status", True), ("Type /rl status", False), (["a", "/rl good"], False)]
)
def test_only_a_whole_prompt_is_a_command(prompt: Any, command: bool):
    assert bool(find_command(completions.read({"prompt": prompt}).messages)) is command


def test_a_whole_answer_and_its_stream_say_the_same():
    told = completions.reassemble([whole(" upon a time", "b")], "application/json", "")
    streamed = completions.reassemble(events(" upon", " a time"), "text/event-stream", "")
    assert told.message == streamed.message == {"role": "assistant", "content": " upon a time"}
    assert (told.finish_reason, streamed.finish_reason) == ("stop", "stop")
    assert told.response_id == streamed.response_id == "cmpl-1"
    assert told.complete and streamed.complete
    assert told.usage == USAGE
    assert [choice["message"]["content"] for choice in told.choices] == [" upon a time", "b"]
