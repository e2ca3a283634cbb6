"""Promises of every surface: no JSON and no bytes break it, wrong fields are named, its own answers are readable."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from typing import Any

import openai
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.http import errors
from burnish.proxy.log.tree import path, step
from burnish.proxy.surfaces import SURFACES, ChatRequest, Gemini, Reply, Surface
from burnish.proxy.surfaces.lenient import loads_storable
from tests.support.upstream import Received, reply, upstream

Json = dict[str, Any]

SSE, NDJSON, JSON = "text/event-stream", "application/x-ndjson", "application/json"
every_surface = pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES)

# The words of each format: members of its objects, and values that it reacts to.
CHAT = (
    "id index delta message role content reasoning_content tool_calls function name arguments finish_reason logprobs "
    "function_call usage error detail text choices custom input type",
    "stop assistant function custom",
)
OLLAMA = (
    "message response role content thinking images tool_calls function name arguments done done_reason error logprobs "
    "eval_count",
    "stop load assistant",
)
WORDS = {
    "chat": CHAT,
    "completions": CHAT,
    "responses": (
        "type id role content text refusal summary call_id name arguments input output output_index content_index "
        "delta item part response status error message incomplete_details reason usage input_tokens annotations",
        "message reasoning function_call custom_tool_call local_shell_call shell_call_output web_search_call "
        "output_text input_text refusal response.created response.completed response.failed response.incomplete "
        "response.output_item.added response.output_item.done response.output_text.delta response.output_text.done "
        "response.refusal.delta response.function_call_arguments.delta response.reasoning_summary_text.delta error "
        "incomplete completed max_output_tokens assistant",
    ),
    "messages": (
        "type index message content delta content_block usage text thinking error partial_json citation citations "
        "stop_reason id input source input_tokens role name tool_use_id",
        "message_start content_block_start content_block_delta content_block_stop message_delta message_stop error "
        "ping text thinking tool_use tool_result image text_delta input_json_delta citations_delta compaction_delta",
    ),
    "ollama_chat": OLLAMA,
    "ollama_generate": OLLAMA,
    "gemini": (
        "role parts text thought functionCall functionResponse inlineData mimeType name args content index "
        "finishReason functionDeclarations parameters type candidates usageMetadata error promptFeedback responseId",
        "STOP model user",
    ),
}
ENVELOPES: dict[str, Any] = {
    "chat": lambda value: {"choices": [{"delta": value, "message": value}]},
    "completions": lambda value: {"choices": [value]},
    "responses": lambda value: {"output": [value]},
    "messages": lambda value: {"type": "content_block_start", "content_block": value},
    "ollama_chat": lambda value: {"message": value},
    "ollama_generate": lambda value: value,
    "gemini": lambda value: {"candidates": [{"content": {"parts": [value]}}]},
}


def values(surface: str) -> st.SearchStrategy[Any]:
    """Any JSON, mostly in the words of a format."""
    members, words = (each.split() for each in WORDS[surface])
    keys, numbers = st.sampled_from(members), st.integers() | st.floats()
    return st.recursive(
        st.none() | st.booleans() | numbers | st.text(max_size=3) | st.sampled_from(words),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=15,
    )


VALUES = {name: values(name) for name in SURFACES}


def check(reply: Reply) -> None:
    orjson.dumps([reply.message, reply.usage, reply.choices])
    if reply.message is not None:
        step(reply.message, None)


@every_surface
@given(data=st.data(), rest=st.binary(max_size=20))
def test_no_json_breaks_the_reassembly(surface: Surface, data: st.DataObject, rest: bytes) -> None:
    members, words = (each.split() for each in WORDS[surface.name])
    anything = VALUES[surface.name]
    others = {member: anything for member in members if member != "type"}
    typed = st.fixed_dictionaries({"type": st.sampled_from(words)}, optional=others)
    any_part = typed | anything | anything.map(ENVELOPES[surface.name])
    parts = data.draw(st.lists(any_part, max_size=4))
    written = [json.dumps(part).encode() for part in parts]
    events = b"".join(b"data: " + each + b"\n\n" for each in written)
    lines = b"".join(each + b"\n" for each in written)
    array = b"[" + b",".join(written) + b"]"
    bodies = [(events, SSE), (events + rest, SSE), (lines + rest, NDJSON), (array + rest, JSON)]
    for body, content_type in [*bodies, *((each, JSON) for each in written)]:
        check(surface.reassemble([body], content_type, ""))


@every_surface
@given(chunks=st.lists(st.binary(max_size=60), max_size=5), encoding=st.sampled_from(["", "gzip"]))
def test_no_bytes_break_the_reassembly(surface: Surface, chunks: list[bytes], encoding: str) -> None:
    for content_type in (SSE, NDJSON, JSON, ""):
        surface.reassemble(chunks, content_type, encoding)


# A call of a tool, for the member whose value is nested without end.
CALLED: dict[str, Any] = {
    "chat": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": 0}}]},
    "completions": {"text": "a", "arguments": 0},
    "responses": {"type": "function_call", "name": "f", "arguments": 0},
    "messages": {"type": "tool_use", "name": "f", "input": 0},
    "ollama_chat": {"tool_calls": [{"function": {"name": "f", "arguments": 0}}]},
    "ollama_generate": {"response": "a", "arguments": 0},
    "gemini": {"functionCall": {"name": "f", "args": 0}},
}
DEPTHS = [*((depth, False) for depth in (200, 900, 1010, 1200, 100_000)), (900, True)]


@every_surface
@pytest.mark.parametrize(("depth", "called"), DEPTHS)
def test_deep_json_breaks_no_reassembly(surface: Surface, depth: int, called: bool) -> None:
    part = CALLED[surface.name] if called else {"type": "new", "deep": 0}
    deep = json.dumps(ENVELOPES[surface.name](part)).encode()
    deep = re.sub(rb'("(?:deep|arguments|input|args)": )0', rb"\1" + b"[" * depth + b"]" * depth, deep)
    surface.reassemble([deep], JSON, "")
    surface.reassemble([b"data: " + deep + b"\n\n"], SSE, "")


REQUESTS: dict[str, Any] = {
    "chat": ("messages", "tools"), "completions": ("prompt",),
    "responses": ("input", "instructions", "tools", "tool_choice", "previous_response_id"),
    "messages": ("messages", "system", "tools", "tool_choice", "stop_sequences"),
    "ollama_chat": ("messages", "options"), "ollama_generate": ("prompt", "system", "images", "options", "suffix"),
    "gemini": ("contents", "systemInstruction", "generationConfig", "tools"),
}  # fmt: skip
"""Members of a request."""
ROLES = st.sampled_from(["user", "assistant", "model", "system", "tool"])


@every_surface
@given(data=st.data())
def test_any_request_is_read_or_refused(surface: Surface, data: st.DataObject) -> None:
    anything = VALUES[surface.name]
    several = st.lists(anything, max_size=3)
    item = st.fixed_dictionaries({"role": ROLES}, optional={"content": several | anything, "parts": several})
    drawn = st.lists(item | anything, max_size=4) | anything | st.text(max_size=4)
    body = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(REQUESTS[surface.name], drawn)))
    body = loads_storable(json.dumps(body))  # as the log reads it
    try:
        request = surface.read(body)
    except errors.InvalidRequest as error:
        assert error.param
        return
    path(request.messages)
    if request.origins is not None:
        assert len(request.origins) == len(request.messages)
    if request.messages and not request.after_command:
        assert surface.without(body, request, set()) == body
    surface.with_system(body, "Be brief.")


HI: Json = {"role": "user", "content": "hi"}
BLOCK: Json = {"type": "text", "text": "hi"}
WRONG: list[tuple[str, Json, str]] = [
    *[(name, {"messages": value}, field)
      for name in ("chat", "messages", "ollama_chat")
      for value, field in [("hi", "messages"), ([HI, "hi"], "messages[1]"), ([{"content": "hi"}], "messages[0].role")]],
    *[(name, {"messages": None}, "messages") for name in ("chat", "messages")],
    *[(name, {"model": 5, "messages": [HI]}, "model") for name in SURFACES if name != "gemini"],
    ("completions", {"prompt": {"a": 1}}, "prompt"),
    ("responses", {"input": 5}, "input"),
    ("responses", {"input": [HI, "hi"]}, "input[1]"),
    ("responses", {"input": [{"type": "message", "content": "hi"}]}, "input[0].role"),
    ("messages", {"messages": [{"role": "user"}]}, "messages[0].content"),
    ("messages", {"messages": [HI | {"content": 5}]}, "messages[0].content"),
    ("messages", {"messages": [HI | {"content": ["hi"]}]}, "messages[0].content[0]"),
    ("messages", {"messages": [HI | {"content": [{"text": "hi"}]}]}, "messages[0].content[0].type"),
    ("messages", {"messages": [HI | {"content": [BLOCK, {"type": "text"}]}]}, "messages[0].content[1].text"),
    ("messages", {"messages": [HI], "system": 5}, "system"),
    ("messages", {"messages": [HI], "system": [{"type": "image"}]}, "system[0].type"),
    ("ollama_generate", {"prompt": ["hi"]}, "prompt"),
    ("ollama_generate", {"prompt": "hi", "system": 5}, "system"),
    ("gemini", {"contents": "Hi"}, "contents"),
    ("gemini", {"contents": [{"parts": []}, "b"]}, "contents[1]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "field"), WRONG)
def test_names_the_field_that_is_wrong(name: str, body: Json, field: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        SURFACES[name].read(body)
    assert caught.value.param == field
    assert caught.value.message.startswith(field)


KIND: Json = {"role": "system", "content": "Be kind."}
BOTH = "Be kind.\n\nBe brief."
PARTS: Json = {"parts": [{"text": "Be kind."}]}
MORE_PARTS: Json = {"parts": [*PARTS["parts"], {"text": "Be brief."}]}
BRIEFLY: Json = {"type": "text", "text": "Be brief."}
SYSTEM: list[tuple[str, Json, Json | None]] = [
    ("chat", {"messages": [HI]}, {"messages": [KIND | {"content": "Be brief."}, HI]}),
    ("chat", {"messages": [KIND, HI]}, {"messages": [KIND | {"content": BOTH}, HI]}),
    ("completions", {"prompt": "Hi"}, None),
    ("responses", {"input": "hi"}, {"input": "hi", "instructions": "Be brief."}),
    ("responses", {"instructions": "Be kind."}, {"instructions": BOTH}),
    ("responses", {"instructions": [1]}, None),
    ("messages", {"messages": [HI]}, {"messages": [HI], "system": "Be brief."}),
    ("messages", {"system": ""}, {"system": "Be brief."}),
    ("messages", {"system": "Be kind."}, {"system": BOTH}),
    ("messages", {"system": [BLOCK]}, {"system": [BLOCK, BRIEFLY]}),
    ("ollama_chat", {"messages": [HI]}, {"messages": [KIND | {"content": "Be brief."}, HI]}),
    ("ollama_chat", {"messages": [KIND, HI]}, {"messages": [KIND | {"content": BOTH}, HI]}),
    ("ollama_generate", {"prompt": "Hi"}, {"prompt": "Hi", "system": "Be brief."}),
    ("ollama_generate", {"prompt": "Hi", "system": "Be kind."}, {"prompt": "Hi", "system": BOTH}),
    ("ollama_generate", {"prompt": "[INST] Hi", "raw": True}, None),
    ("gemini", {"contents": [PARTS]}, {"contents": [PARTS], "systemInstruction": {"parts": [{"text": "Be brief."}]}}),
    *[("gemini", {"contents": [PARTS], name: PARTS}, {"contents": [PARTS], name: MORE_PARTS})
      for name in ("systemInstruction", "system_instruction")],
    ("gemini", {"contents": []}, None),
    ("gemini", {"contents": [PARTS], "cachedContent": "c"}, None),
    ("gemini", {"contents": [PARTS], "systemInstruction": "Be kind."}, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "extended"), SYSTEM)
def test_a_text_goes_to_the_end_of_the_system_prompt(name: str, body: Json, extended: Json | None) -> None:
    assert SURFACES[name].with_system(body, "Be brief.") == extended


FORMS: dict[str, Surface] = {**SURFACES, "gemini, an array": Gemini(sse=False)}


@pytest.mark.parametrize("surface", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("stream", [False, True])
def test_our_own_answers_can_be_read(surface: Surface, stream: bool) -> None:
    said = "rated good – “Paris”"
    request = ChatRequest([], stream=stream, previous="resp_1")
    content_type, parts = surface.answer(said, request, "cmpl_1A", "m")
    body = b"".join(parts)
    assert body.startswith(b"[") is (surface == FORMS["gemini, an array"] and stream)
    for packed, encoding in ((body, ""), (gzip.compress(body), "gzip")):
        found = surface.reassemble([packed], content_type, encoding)
        given = {name: value for name, value in found.message.items() if value}
        assert given == {"role": "assistant", "content": said}
        assert (found.finish_reason, found.error) == ("stop", None)
        assert found.complete and found.readable
        if surface.name == "responses":
            assert surface.read({"previous_response_id": found.response_id}).previous == "resp_1"
        elif surface.name == "gemini":
            assert found.response_id == "cmpl_1A"
    for encoding in ("gzip", "deflate", "br", "zstd", "rot13"):
        damaged = surface.reassemble([body], content_type, encoding)
        assert damaged.error and not damaged.readable


ANTHROPICS = {
    errors.InvalidRequest: "invalid_request_error", errors.Unauthorized: "authentication_error",
    errors.NotFound: "not_found_error", errors.UpstreamUnreachable: "api_error", errors.BurnishError: "api_error",
}  # fmt: skip
GOOGLES = {errors.NotFound: "NOT_FOUND", errors.Unavailable: "UNAVAILABLE", errors.Conflict: "ABORTED"}
ERRORS: list[tuple[str, type[errors.BurnishError], Json]] = [
    *[("messages", error, {"type": "error", "error": {"type": kind, "message": "a"}, "request_id": None})
      for error, kind in ANTHROPICS.items()],
    *[("gemini", error, {"error": {"code": error.status, "message": "a", "status": status}})
      for error, status in GOOGLES.items()],
    *[(name, errors.NotFound, {"error": "a"}) for name in ("ollama_chat", "ollama_generate")],
]  # fmt: skip


@pytest.mark.parametrize(("name", "error", "told"), ERRORS)
def test_errors_are_told_in_the_words_of_the_format(name: str, error: Any, told: Json) -> None:
    assert SURFACES[name].error(error("a")) == told


@every_surface
@pytest.mark.parametrize("content_type", [JSON, SSE, "text/html", ""])
def test_bodies_without_an_answer_are_kept_as_the_error(surface: Surface, content_type: str) -> None:
    page = b"<html>Bad Gateway</html>"
    assert surface.reassemble([page], content_type, "") == Reply(error=page.decode(), readable=False)
    assert surface.reassemble([], content_type, "").message is None
    for error in ({"error": {"message": "slow down"}}, {"error": "slow down"}, {"detail": "slow down"}):
        reply = surface.reassemble([orjson.dumps(error)], content_type, "")
        assert reply.message is None
        assert "slow down" in (reply.error or "")
    whole = b"".join(surface.answer("Hi.", ChatRequest([]), "cmpl_1", "m")[1])
    assert surface.reassemble([whole], content_type, "").complete


@pytest.mark.parametrize("kind", ["chat", "completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_official_client_accepts_our_own_answers(kind: str, stream: bool) -> None:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        asked = SURFACES[kind].read(request.json())
        content_type, parts = SURFACES[kind].answer("rated good", asked, "cmpl_1", "m")
        await reply(b"".join(parts), headers=f"content-type: {content_type}\r\n")(request, writer)

    more: Json = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    async with upstream(script) as server, openai.AsyncOpenAI(base_url=server.url, api_key="x") as sdk:
        if kind == "chat":
            answer: Any = await sdk.chat.completions.create(model="m", messages=[HI], **more)  # type: ignore[list-item]
        else:
            answer = await sdk.completions.create(model="m", prompt="/rl good", **more)
        parts = [part async for part in answer] if stream else [answer]
    choices = [choice for part in parts for choice in part.choices]
    assert choices[-1].finish_reason == "stop"
    if kind == "chat":
        texts = [getattr(choice, "delta" if stream else "message").content or "" for choice in choices]
    else:
        texts = [choice.text for choice in choices]
    assert "".join(texts) == "rated good"
    assert (parts[-1].usage.total_tokens, parts[-1].id) == (0, "cmpl_1")
