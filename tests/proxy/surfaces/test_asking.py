"""What clients of other formats ask, as an engine is asked that knows chat completions only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.http.errors import InvalidRequest
from burnish.proxy.surfaces import SURFACES, Translatable
from burnish.proxy.surfaces.lenient import loads_storable
from tests.proxy.log.exchanges import user
from tests.support.anthropic_wire import text
from tests.support.chance import Chance, write
from tests.support.formats import FORMATS

Json = dict[str, Any]


def as_chat(surface: str, **body: Any) -> Json:
    translatable = SURFACES[surface]
    assert isinstance(translatable, Translatable)
    return translatable.as_chat(body, translatable.read(body))


def messages(*said: Json, **more: Any) -> Json:
    return as_chat("messages", messages=list(said), **more)


def responses(*items: Any, **more: Any) -> Json:
    return as_chat("responses", input=list(items), **more)


def gemini(*contents: Any, **more: Any) -> Json:
    return as_chat("gemini", contents=list(contents), **more)


def shaped(schema: Json, name: str = "answer", **more: Any) -> Json:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **more}}


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
PDF = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}
FILE = {"type": "file", "file": PDF}


def test_the_system_prompt_is_one_message_at_the_beginning() -> None:
    monday, tuesday = ({"role": "system", "content": f"It is {day}."} for day in ("Monday", "Tuesday"))
    turn = [{"role": "assistant", "content": "Rain."}, user("And now?")]
    question = user([text("Weather?"), text("In Köln.")])
    asked = messages(question, monday, *turn, tuesday, system=[text("Be brief."), text("Be kind.")])
    first = {"role": "system", "content": "Be brief.\nBe kind.\n\nIt is Monday."}
    assert asked["messages"] == [first, user("Weather?\nIn Köln."), *turn, user("It is Tuesday.")]


def test_what_tools_show_is_shown_behind_all_results() -> None:
    use = {"type": "tool_use", "name": "look", "input": {}}
    result = {"type": "tool_result", "is_error": True}
    wet = {**result, "tool_use_id": "a", "content": [text("wet"), IMAGE]}
    asked = messages(
        {"role": "assistant", "content": [{**use, "id": "a"}, {**use, "id": "b"}]},
        user([wet, {**result, "tool_use_id": "b", "content": "dry"}, text("Go on."), IMAGE]),
    )
    words = (("a", "wet"), ("b", "dry"))
    results = [{"role": "tool", "tool_call_id": name, "content": word} for name, word in words]
    assert asked["messages"][1:] == [*results, user([SHOWN]), user([text("Go on."), SHOWN])]
    last = messages(user([{**result, "tool_use_id": "a", "content": [IMAGE]}]))
    assert last["messages"][1:] == [user([SHOWN])]


def test_documents_are_texts_or_files() -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "Once upon a time."}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    parted = {"type": "content", "content": [text("In parts.")]}
    parts = [{"type": "document", "source": source} for source in (plain, pdf, parted)]
    parts[1]["title"] = "a.pdf"
    told = [text("Once upon a time."), FILE, text("In parts."), text('{"type":"new"}')]
    assert messages(user([*parts, {"type": "new"}]))["messages"] == [user(told)]
    assert responses(user(["Hi.", "Hello."]))["messages"] == [user("Hi.\nHello.")]


def test_settings_go_along_where_chat_has_them() -> None:
    schema, sampling = {"type": "object"}, {"max_tokens": 9, "temperature": 0.1, "top_k": 3}
    output = {"effort": "high", "format": {"type": "json_schema", "schema": schema}}
    settings = {"stop_sequences": ["."], "stream": True, "metadata": {"user_id": "ann"}}
    settings |= {"thinking": {"type": "adaptive"}, "output_config": output}
    asked = messages(user("Weather?"), **sampling, **settings)
    del asked["messages"]
    wanted = shaped(schema, strict=True)
    assert asked == {**sampling, "stop": ["."], **STREAMED, "response_format": wanted}
    settings = {"max_output_tokens": 9, "store": False, "include": ["reasoning.encrypted_content"]}
    settings |= {"reasoning": {"effort": "low", "summary": "auto"}}
    form = {"type": "json_schema", "name": "a", "schema": schema, "strict": False}
    asked = responses(user("Weather?"), **settings, text={"format": form})
    del asked["messages"]
    wanted = shaped(schema, "a", strict=False)
    assert asked == {"max_tokens": 9, "reasoning_effort": "low", "response_format": wanted}


def test_tools_that_the_upstream_cannot_run_are_left_out() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    asked = messages(user("News?"), tools=[search], tool_choice={"type": "tool", "name": "web_search"})
    assert asked.keys() == {"messages"}
    assert responses(user("News?"), tools=[{"type": "web_search"}], tool_choice="auto").keys() == {"messages"}


def test_tools_of_other_kinds_are_functions_to_the_model() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}
    patch = {"type": "custom", "name": "patch", "description": "Patches.", "format": grammar}
    spawn = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
    called = [
        {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "aaa"},
        {"type": "function_call", "call_id": "b", "name": "spawn", "namespace": "agents", "arguments": "{}"},
    ]
    output = {"type": "custom_tool_call_output", "call_id": "a", "output": "done"}
    tools = [patch, {"type": "namespace", "name": "agents", "tools": [spawn]}]
    choice = {"type": "custom", "name": "patch"}
    asked = responses(user("Go."), *called, output, tools=tools, tool_choice=choice)
    first, second = (tool["function"] for tool in asked["tools"])
    assert (first["name"], second["name"]) == ("patch", "agents__spawn")
    assert first["description"].endswith("start: /a/")
    assert first["parameters"]["required"] == ["input"]
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    made = [call["function"] for call in asked["messages"][1]["tool_calls"]]
    patched = {"name": "patch", "arguments": '{"input":"aaa"}'}
    assert made == [patched, {"name": "agents__spawn", "arguments": "{}"}]


def test_ollamas_settings_go_along_where_chat_has_them() -> None:
    schema = {"type": "object"}
    tool = {"type": "function", "function": {"name": "look", "parameters": schema}}
    common, images = {"temperature": 0.1, "top_k": 3, "stop": ["."]}, ["iVBORw0KGgo="]
    said = [{"role": "system", "content": "Be brief."}, {**user("Look!"), "images": images}]
    options = {"num_predict": 9, "num_ctx": 4096, "repeat_penalty": 1.1, **common}
    more = {"tools": [tool], "format": schema, "think": "low", "keep_alive": 5}
    asked = as_chat("ollama_chat", messages=said, options=options, **more)
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{images[0]}"}}
    told = [{"role": "system", "content": "Be brief."}, user([text("Look!"), shown])]
    expected = {"messages": told, "max_tokens": 9, "repetition_penalty": 1.1, "tools": [tool], **common}
    assert asked == expected | {"reasoning_effort": "low", "response_format": shaped(schema), **STREAMED}
    more = {"format": "json", "think": True, "stream": False, "options": {"num_predict": -1}}
    asked = as_chat("ollama_generate", prompt="Look!", system="Be brief.", images=images, **more)
    assert asked == {"messages": told, "response_format": {"type": "json_object"}}


def test_googles_settings_go_along_where_chat_has_them() -> None:
    schema = {"type": "OBJECT", "properties": {"type": {"type": "STRING", "enum": ["STRING"]}}}
    plain = {"type": "object", "properties": {"type": {"type": "string", "enum": ["STRING"]}}}
    as_json = {"responseMimeType": "application/json"}
    config = {"temperature": 0.1, "topK": 40.0, "maxOutputTokens": 9, "stopSequences": ["."]}
    config |= {"candidateCount": 1, "thinkingConfig": {"thinkingBudget": 0}, "responseSchema": schema}
    functions = [{"name": "look", "parameters": schema}, {"name": "go"}]
    called = {"mode": "ANY", "allowedFunctionNames": ["look"]}
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    settings: dict[str, Any] = {"generationConfig": config | as_json, "safetySettings": []}
    settings |= {"tools": [{"functionDeclarations": functions}, {"googleSearch": {}}]}
    settings |= {"toolConfig": {"functionCallingConfig": called}}
    prompt = {"parts": [{"text": "Be brief."}]}
    content = {"role": "user", "parts": [{"text": "Look!"}, image]}
    asked = gemini(content, systemInstruction=prompt, **settings)
    assert asked == {
        "messages": [{"role": "system", "content": "Be brief."}, user([text("Look!"), SHOWN])],
        **{"temperature": 0.1, "top_k": 40, "max_tokens": 9, "stop": ["."], "response_format": shaped(plain)},
        "tools": [{"type": "function", "function": {"name": "look", "parameters": plain}}],
        "tool_choice": "required",
    }
    snake = {"response_mime_type": "application/json", "response_json_schema": plain}
    for style, wanted in ((as_json, {"type": "json_object"}), (snake, shaped(plain))):
        assert gemini({"parts": [text("Hi")]}, generationConfig=style)["response_format"] == wanted


def test_googles_files_and_sounds_are_those_of_chat() -> None:
    pdf = {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg==", "displayName": "a.pdf"}}
    sound = {"inline_data": {"mime_type": "audio/mpeg", "data": "aGk="}}
    asked = gemini({"role": "user", "parts": [pdf, sound]})
    heard = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}}
    assert asked["messages"] == [user([FILE, heard])]


HI = {"contents": [{"parts": [{"text": "Hi"}]}]}
REFUSED: list[tuple[str, Json, str]] = [
    *[("responses", {"input": "Hi", name: True}, name) for name in ("conversation", "prompt", "background")],
    *[("ollama_generate", {"prompt": "Hi", name: "x"}, name) for name in ("raw", "suffix", "template")],
    ("ollama_generate", {"prompt": "Hi", "context": [1]}, "context"),
    ("gemini", HI | {"cachedContent": "cachedContents/a"}, "cachedContent"),
    ("gemini", HI | {"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount"),
]


@pytest.mark.parametrize(("name", "body", "param"), REFUSED)
def test_what_chat_has_no_way_to_ask_is_refused_by_name(name: str, body: Json, param: str) -> None:
    with pytest.raises(InvalidRequest, match=param.rpartition(".")[2]) as caught:
        as_chat(name, **body)
    assert caught.value.param == param


def test_results_find_their_calls_where_neither_has_an_id() -> None:
    """As chat wants it: by function, then by order; an id of the first turn stays when there is a second one."""
    calls = [("look", "Köln"), ("look", "Bonn"), ("go", "Ulm")]
    made = [{"function": {"name": name, "arguments": {"city": city}}} for name, city in calls]
    turn = [
        {"role": "assistant", "content": "", "tool_calls": made},
        {"role": "tool", "tool_name": "go", "content": "gone"},
        {"role": "tool", "tool_name": "look", "content": "wet"},
        {"role": "tool", "content": "dry"},
    ]
    of_ollama = as_chat("ollama_chat", messages=[*turn, *turn])["messages"]
    parts = [{"functionCall": {"name": name, "args": {"city": city}}} for name, city in calls]
    results = [{"functionResponse": {"name": name, "response": {}}} for name in ("go", "look", "look")]
    contents = [{"role": "model", "parts": parts}, {"role": "user", "parts": results}]
    of_google = gemini(*contents, *contents)["messages"]
    for asked in (of_ollama, of_google):
        ids = [[call["id"] for call in asked[at]["tool_calls"]] for at in (0, 4)]
        assert ids == [["call00000", "call00001", "call00002"], ["call00003", "call00004", "call00005"]]
        answered = [message["tool_call_id"] for message in asked if message["role"] == "tool"]
        assert answered == [ids[0][2], *ids[0][:2], ids[1][2], *ids[1][:2]]


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ODD: dict[str, Callable[[Any], Json]] = {
    "messages": lambda odd: {"tools": odd, "output_config": odd, "tool_choice": odd},
    "responses": lambda odd: {"tools": odd, "text": odd, "reasoning": odd, "tool_choice": odd},
    "ollama_chat": lambda odd: {"tools": odd, "options": odd, "format": odd, "think": odd},
    "gemini": lambda odd: {
        "tools": [{"functionDeclarations": odd}],
        "toolConfig": {"functionCallingConfig": odd},
        "generationConfig": {"responseMimeType": "application/json", "responseSchema": odd, "topK": odd},
    },
}
"""Members of a request that may hold anything."""


@pytest.mark.parametrize("name", ODD)
@given(seed=st.integers(0), odd=anything | st.lists(anything))
def test_whatever_is_asked_is_chat(name: str, seed: int, odd: Any) -> None:
    chance = Chance(seed)
    body = loads_storable(write(FORMATS[name].request(chance, False), chance))
    asked = as_chat(name, **body | (ODD[name](odd) if chance.maybe() else {}))
    for at, message in enumerate(asked["messages"]):
        assert message["role"] in ("system", "user", "assistant", "tool")
        assert message["role"] != "system" or at == 0
        assert message["role"] == "user" or isinstance(message["content"], str | None)
    assert all(tool["type"] == "function" for tool in asked.get("tools", ()))
