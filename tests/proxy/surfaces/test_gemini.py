"""Google's format: what is read, what is put together from any of its three forms, what is answered locally."""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.log.tree import step
from burnish.proxy.surfaces import SURFACES, Gemini, Reply, surface_at
from tests.support import chat_wire

gemini = Gemini()
USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 3, "totalTokenCount": 10}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts: Any) -> dict[str, Any]:
    return user(*parts) | {"role": "model"}


def called(name: str, **args: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args}}


def returned(name: str, **response: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": response}}


def chunk(*parts: Any, finish: str | None = None, index: int | None = 0, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": model(*parts)} if parts else {}
    candidate |= {"finishReason": finish} if finish else {}
    candidate |= {} if index is None else {"index": index}
    return {"candidates": [candidate], "modelVersion": "m", "responseId": "r1", **more}


def events(*chunks: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks)


def streamed(*chunks: Any) -> Reply:
    return gemini.reassemble([events(*chunks)], "text/event-stream", "")


@pytest.mark.parametrize(
    ("path", "query", "found"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", b"", Gemini("gemini-2.5-pro", False, False)),
        ("/v1/models/smollm2@v3:streamGenerateContent", b"alt=sse", Gemini("smollm2@v3", True, True)),
        ("/v1beta/models/m:streamGenerateContent", b"key=k&%24alt=sse", Gemini("m", True, True)),
        ("/v1beta/models/m:streamGenerateContent", b"key=k", Gemini("m", True, False)),
        ("/v1beta/models/org/llama3:8b:generateContent", b"", Gemini("org/llama3:8b", False, False)),
        ("/v1beta/models/m:countTokens", b"", Gemini("m", False, False)),
        ("/v1beta/models/m:embedContent", b"", None),
        ("/v1beta/models/m", b"", None),
        ("/x/v1beta/models/m:generateContent", b"", Gemini("m", False, False)),
        ("/v1/projects/p/publishers/google/models/m:countTokens", b"", Gemini("m", False, False)),
    ],
)
def test_the_address_says_model_and_stream(path: str, query: bytes, found: Gemini | None):
    assert surface_at(path, query) == found
    if found is not None:
        request = found.read({})
        assert (request.model, request.stream) == (found.model, found.stream)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1beta/models/default:generateContent", "/v1beta/models/smollm2@v3:generateContent"),
        ("/v1/models/a%3Ab%3AstreamGenerateContent", "/v1/models/smollm2@v3:streamGenerateContent"),
        ("/v1/chat/completions", None),
    ],
)
def test_another_model_is_named_in_the_path(path: str, named: str | None):
    assert SURFACES["gemini"].path_naming(path, "smollm2@v3") == named


@given(st.text(min_size=1))
def test_any_name_of_a_model_comes_through_the_path(name: str):
    encodable = name.encode(errors="replace").decode()
    path = gemini.path_naming("/v1beta/models/default:generateContent", encodable)
    assert path is not None and path.isascii()
    assert not set(path) & set(" ?#\r\n")


def snake(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub("[A-Z]", lambda at: f"_{at[0].lower()}", key): snake(value[key]) for key in value}
    return [snake(each) for each in value] if isinstance(value, list) else value


def test_both_spellings_say_the_same():
    function = {"name": "f", "parametersJsonSchema": {"type": "object"}}
    camel = {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            user({"fileData": {"mimeType": "image/png", "fileUri": "https://x/y.png"}}),
            model(called("f", a=1), {"executableCode": {"language": "PYTHON", "code": "1"}}),
            user(returned("f", b=2)),
        ],
        "generationConfig": {"maxOutputTokens": 9, "topP": 0.5},
        "tools": [{"functionDeclarations": [function]}, {"googleSearch": {}}],
    }
    one, other = gemini.read(camel), gemini.read(snake(camel))
    assert one.messages == other.messages
    config = camel["generationConfig"]
    assert one.params.items() >= {"max_tokens": 9, "top_p": 0.5, "generationConfig": config}.items()
    assert one.params["google_tools"] == [{"googleSearch": {}}]
    for key in ("max_tokens", "top_p", "tools"):
        assert one.params[key] == other.params[key]


def test_what_stands_beside_a_functions_result_is_nobodys_turn():
    request = gemini.read({"contents": [user(returned("read", output=""), "/rl good")]})
    assert [message["role"] for message in request.messages] == ["tool"]
    assert request.messages[0]["content"][1] == {"type": "text", "text": "/rl good"}


def test_contents_are_cut_and_everything_else_stays():
    contents = [user("a"), model("b"), model("c"), user(returned("f"), returned("g")), user("d")]
    body = {"systemInstruction": {"parts": [{"text": "s"}]}, "contents": contents, "cachedContent": "x"}
    request = gemini.read(body)
    assert request.origins == (-1, (0,), (1, 2), (3,), (3,), (4,))
    assert gemini.without(body, request, {1, 2}) == {**body, "contents": contents[3:]}
    assert gemini.without(body, request, {3}) == body  # the other half of that content stays
    assert gemini.without(body, request, {3, 4})["contents"] == [*contents[:3], user("d")]


def test_its_three_forms_give_the_same_reply():
    pieces = [chunk("Hel"), chunk("lo"), chunk(finish="STOP", usageMetadata=USAGE)]
    whole = gemini.reassemble([orjson.dumps(chunk("Hello", finish="STOP", usageMetadata=USAGE))], "", "")
    array = gemini.reassemble([json.dumps(pieces, indent=2).encode()], "application/json", "")
    assert whole == array == streamed(*pieces)
    assert whole.message == {"role": "assistant", "content": "Hello"}
    assert (whole.finish_reason, whole.response_id, whole.complete) == ("stop", "r1", True)
    assert whole.usage == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10, **USAGE}


def test_thoughts_calls_and_code_stand_where_they_belong():
    reply = streamed(
        chunk({"text": "let me ", "thought": True}),
        chunk({"text": "see", "thought": True}),
        chunk("One: "),
        chunk({"executableCode": {"code": "1"}}, {"text": "", "thoughtSignature": "x"}),
        chunk("done", {"thoughtSignature": "y"}),
        chunk({"functionCall": {"name": "f", "id": "c1"}}, finish="STOP"),
    )
    code = {"type": "executableCode", "executableCode": {"code": "1"}}
    content = [{"type": "text", "text": "One: "}, code, {"type": "text", "text": "done"}]
    more = {"reasoning_content": "let me see", "tool_calls": [chat_wire.called("f", {}, "c1")]}
    assert reply.message == {"role": "assistant", "content": content, **more}
    assert reply.finish_reason == "tool_calls"


ENDINGS = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter", "RECITATION": "content_filter"}
ENDINGS |= {"MALFORMED_FUNCTION_CALL": "error", "OTHER": "OTHER"}


@pytest.mark.parametrize(("google", "ours"), ENDINGS.items())
def test_why_it_ended_is_told_in_the_words_of_chat(google: str, ours: str):
    assert streamed(chunk("a", finish=google)).finish_reason == ours
    nothing_said = streamed(chunk(finish=google))
    assert (nothing_said.message, nothing_said.finish_reason, nothing_said.complete) == (
        None,
        ours,
        ours != "error",
    )


def test_a_blocked_prompt_is_an_answer_without_a_reply():
    reply = streamed({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE})
    assert (reply.message, reply.finish_reason, reply.complete) == (None, "content_filter", True)
    assert reply.error == "the prompt was blocked: SAFETY"


def test_all_candidates_are_kept():
    begun, ended = chunk("b", index=1), chunk(finish="MAX_TOKENS", index=1)
    reply = streamed(begun, chunk("a", index=None), chunk("!", finish="STOP"), ended)
    assert reply.message == {"role": "assistant", "content": "a!"}
    assert [choice["message"]["content"] for choice in reply.choices] == ["a!", "b"]
    assert [choice["finish_reason"] for choice in reply.choices] == ["stop", "length"]
    assert reply.complete


def test_sources_are_kept_and_safety_ratings_are_not():
    candidate = {"content": model("a"), "finishReason": "STOP", "safetyRatings": [1]}
    assert streamed({"candidates": [candidate]}).choices == ()
    sources = {"groundingMetadata": {"webSearchQueries": ["q"]}}
    (choice,) = streamed({"candidates": [candidate | sources]}).choices
    assert choice.items() >= sources.items()


args = st.dictionaries(st.text(max_size=4), st.none() | st.integers(-9, 9) | st.text(max_size=4), max_size=3)
parts = st.one_of(
    st.builds(lambda text: {"text": text}, st.text(max_size=8)),
    st.builds(lambda text: {"text": text, "thought": True}, st.text(max_size=8)),
    st.builds(lambda name, args: called(name, **args), st.text(max_size=4), args),
    st.just({"executableCode": {"language": "PYTHON", "code": "1"}}),
    st.just({"text": "", "thoughtSignature": "abc"}),
)
turns = st.lists(st.lists(parts, min_size=1, max_size=3), min_size=1, max_size=5)


@given(turns, st.integers(1, 60))
def test_however_a_stream_is_cut_its_reply_is_known_again(said: list[list[dict[str, Any]]], size: int):
    """In a history it is one content, or one for each chunk as google-genai's chats have it."""
    body = events(*(chunk(*each) for each in said), chunk(finish="STOP"))
    cut = [body[at : at + size] for at in range(0, len(body), size)]
    reply = gemini.reassemble(cut, "text/event-stream", "")
    assert reply.complete and reply.message is not None
    for contents in ([model(*chain.from_iterable(said))], [model(*each) for each in said]):
        sent_back = json.loads(json.dumps({"contents": [user("Hi"), *contents, user("Go on")]}))
        question, known, _ = gemini.read(sent_back).messages
        above = step(question, None)
        assert step(known, above) == step(reply.message, above)  # stored once: the same to the byte


def test_calls_and_schemas_nested_without_end_harm_nobody():
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    tools = [{"functionDeclarations": [{"parameters": deep}]}]
    body = {"contents": [model(called("f", a=deep))], "tools": tools}
    assert gemini.read(body).messages[0]["tool_calls"][0]["function"]["name"] == "f"
