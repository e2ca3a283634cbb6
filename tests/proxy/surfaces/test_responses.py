"""Responses: what is read of items, what is put together from the wire, what is answered locally."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from burnish.proxy.log.tree import path, step
from burnish.proxy.rl.commands import exchanges, find_command
from burnish.proxy.surfaces import ChatRequest, Reply, Responses
from burnish.proxy.surfaces.base import before_ours, our_id
from burnish.proxy.surfaces.responses import OUR_PREFIX
from tests.support.anthropic_wire import text
from tests.support.chat_wire import called
from tests.support.responses import call, events, message, reasoning, refusal, response, sse

responses = Responses()


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


def result(output: Any = "ok", call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def read(*items: Any, **body: Any) -> ChatRequest:
    return responses.read({"model": "m", "input": list(items), **body})


def whole(body: Any) -> Reply:
    return responses.reassemble([orjson.dumps(body)], "application/json", "")


def streamed(*parts: bytes) -> Reply:
    return responses.reassemble(parts, "text/event-stream; charset=utf-8", "")


def test_a_text_is_one_message_of_the_users():
    more = {"instructions": "Be brief.", "stream": True, "new": 1}
    request = responses.read({"model": "m", "input": "hi", **more})
    assert request.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert (request.model, request.stream, request.previous) == ("m", True, None)
    assert request.params == {"stream": True, "new": 1, "instructions": True}


def test_what_one_response_says_is_one_message():
    response = [reasoning("Adding.", "Carefully.", encrypted="gAAA"), message("Let me see.")]
    response += [call("add", '{"a":2}', "call_1"), call("add", '{"a":4}', "call_2")]
    results = [result("5", "call_1"), result([{"type": "input_text", "text": "8"}], "call_2")]
    question = {"type": "message", **user("What is 2 + 3?", "And 4?")}
    items = [question, *response, *results, message("5 and ", "8."), user("Thanks.")]
    request = read(*items, instructions="Add.")
    asked, said, first, second, answered, thanked = request.messages[1:]
    assert asked["content"] == [text("What is 2 + 3?"), text("And 4?")]
    calls = [called("add", {"a": 2}, "call_1"), called("add", {"a": 4}, "call_2")]
    words = {"content": "Let me see.", "reasoning_content": "Adding.\n\nCarefully."}
    assert said == {"role": "assistant", **words, "tool_calls": calls}
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": "5"}
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": [text("8")]}
    assert answered["content"] == [text("5 and "), text("8.")]
    assert thanked["role"] == "user"
    assert request.origins == ((-1,), (0,), (1, 2, 3, 4), (5,), (6,), (7,), (8,))


def test_images_files_and_unknown_parts_are_kept():
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}
    odd = {"type": "input_smell", "smell": "sweet"}
    (asked,) = read({"role": "user", "content": [image, file, odd]}).messages
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}
    paper = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}
    assert asked["content"] == [shown, {"type": "file", "file": paper}, odd]


SHELL = {"type": "exec", "command": ["ls"], "env": {}}
PATCHED = {"name": "apply_patch", "input": "*** Begin"}
PATCH = {"type": "custom_tool_call", **PATCHED, "namespace": "x"}
DELETE = {"type": "delete_file", "path": "a"}


@pytest.mark.parametrize(
    ("item", "made"),
    [
        (PATCH, {"custom": PATCHED, "type": "custom", "namespace": "x"}),
        ({"type": "local_shell_call", "action": SHELL | {"timeout_ms": None}}, called("local_shell", SHELL)),
        ({"type": "apply_patch_call", "operation": DELETE}, called("apply_patch", DELETE)),
    ],
)
def test_calls_of_every_kind_are_tool_calls(item: dict[str, Any], made: dict[str, Any]):
    answered = {"type": item["type"] + "_output", "call_id": "c", "output": "done"}
    said, tool = read({**item, "call_id": "c", "id": "x", "status": "completed"}, answered).messages
    assert said["tool_calls"] == [made | {"id": "c"}]
    assert tool == {"role": "tool", "tool_call_id": "c", "content": "done"}


def test_what_the_server_did_itself_is_kept_and_harmless():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    reference = {"type": "item_reference", "id": "msg_7"}
    request = read(user("Search."), search, message("Found."), reference, user("/rl good"))
    assert request.messages[1] == {"role": "assistant", "content": "Found.", "items": [search, reference]}
    assert find_command(request.messages)


def test_functions_are_named_as_in_chat_and_other_tools_apart():
    function = {"name": "add", "parameters": {"type": "object"}, "strict": True}
    search, chosen = {"type": "web_search"}, {"type": "function", "name": "add"}
    tools = [{"type": "function", **function}, search]
    params = read(tools=tools, tool_choice=chosen, max_output_tokens=9).params
    assert params["tools"] == [{"type": "function", "function": function}]
    assert (params["other_tools"], params["max_completion_tokens"]) == ([search], 9)
    assert params["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert "tool_choice" not in read(tool_choice={"type": "web_search"}).params


def test_a_rating_is_the_whole_of_the_last_turn():
    said = [user("Hi"), message("Hello")]
    context = "<environment_context>\n  <cwd>/home</cwd>\n</environment_context>"
    rules = "# AGENTS.md instructions for /home\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>"
    old_rules = "<user_instructions>\n\nBe kind.\n\n</user_instructions>"
    aborted = "<turn_aborted>\nThe user interrupted.\n</turn_aborted>"
    for around in ([], [user(context)], [user(rules, context)], [user(old_rules)], [user(aborted)]):
        assert find_command(read(*said, *around, user("/rl good")).messages), around
    assert find_command(read(*said, user(rules, context, "/rl bad too long")).messages)
    assert find_command(responses.read({"input": "/rl status"}).messages)


@pytest.mark.parametrize(
    "items",
    [
        [call("read"), result([{"type": "input_text", "text": "/rl good"}])],
        [reasoning("/rl good")],
        [user("See <environment_context>x</environment_context>", "/rl good")],
        [user("/rl good"), message("Fine.")],
    ],
)
def test_elsewhere_it_is_no_command(items: list[Any]):
    """And in all that test_poison.py sends."""
    assert find_command(read(user("Hi"), *items).messages) is None


def test_earlier_commands_are_cut_with_our_answers_to_them():
    said, rated = [user("Hi"), reasoning("Greeting."), message("Hello")], message("burnish: rated good")
    body = {"input": [*said, user("/rl good"), rated, user("Again")], "instructions": "Greet.", "x": 1}
    request = responses.read(body)
    cut = exchanges(request.messages)
    assert responses.without(body, request, cut) == {**body, "input": [*said, user("Again")]}


@pytest.mark.parametrize("previous", ["resp_abc", "resp_ä/+_=-", None])
def test_our_ids_say_what_they_stood_on(previous: str | None):
    named = our_id(OUR_PREFIX, "cmpl_01ABC", previous)
    body = {"model": "m", "input": "hi", "previous_response_id": named}
    request = responses.read(body)
    assert (request.previous, request.after_command) == (previous, True)
    sent = responses.without(body, request, set())
    assert sent == {"model": "m", "input": "hi"} | ({"previous_response_id": previous} if previous else {})


@example("x_a")
@given(st.text(max_size=20))
def test_ids_that_only_look_like_ours_break_nothing(rest: str):
    assert isinstance(before_ours(OUR_PREFIX, OUR_PREFIX + rest), str | None)


def test_a_whole_answer_and_its_stream_say_the_same():
    said = (reasoning("Hm."), message("Let me ", "see."), call("add", '{"a":1}'))
    body = response(*said, response_id="resp_9")
    reply = whole(body)
    assert reply == streamed(*events(body))
    words = {"reasoning_content": "Hm.", "content": [text("Let me "), text("see.")]}
    assert reply.message == {"role": "assistant", **words, "tool_calls": [called("add", {"a": 1})]}
    assert (reply.finish_reason, reply.response_id) == ("tool_calls", "resp_9")
    assert (reply.complete, reply.error) == (True, None)
    assert reply.usage.items() >= {"prompt_tokens": 5, "output_tokens": 2, "completion_tokens": 2}.items()


@pytest.mark.parametrize(
    ("status", "more", "ending"),
    [
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, ("length", True, None)),
        ("incomplete", {"incomplete_details": {"reason": "content_filter"}}, ("content_filter", True, None)),
        ("incomplete", {"incomplete_details": None}, ("length", True, None)),
        ("failed", {"error": {"code": "server_error", "message": "no memory"}}, (None, False, "no memory")),
    ],
)
def test_an_answer_says_why_it_is_not_whole(status: str, more: dict[str, Any], ending: tuple[Any, ...]):
    body = response(*([message("Once upon")] if status == "incomplete" else []), status=status, **more)
    for reply in (whole(body), streamed(*events(body))):
        assert (reply.finish_reason, reply.complete, reply.error) == ending
        assert (reply.message is None) is (status == "failed")


@pytest.mark.parametrize(
    "said",
    [{"code": "server_error", "message": "overloaded", "param": None}, {"error": {"message": "overloaded"}}],
)
def test_an_error_in_a_stream_is_told_and_the_stream_has_not_ended(said: dict[str, Any]):
    reply = streamed(*events(response(message("Half an answer")))[:6], sse("error", said))
    assert (reply.error, reply.complete) == ("overloaded", False)
    assert reply.message == {"role": "assistant", "content": "Half an "}


def test_an_answer_in_the_background_has_no_reply_yet():
    reply = whole(response(status="queued"))
    assert (reply.message, reply.finish_reason, reply.complete) == (None, None, True)


def test_a_refusal_is_no_content():
    refused = response(refusal("I won't."))
    for reply in (whole(refused), streamed(*events(refused)[:-2])):
        assert reply.message == {"role": "assistant", "content": None, "refusal": "I won't."}


def test_probabilities_and_what_the_servers_tools_answered_are_kept_apart():
    likely = message("a")
    likely["content"][0]["logprobs"] = [{"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}]
    reply = whole(response(likely))
    assert reply.message == {"role": "assistant", "content": "a"}
    assert reply.choices[0]["output"] == [likely]
    shell = [{"type": "shell_call", "call_id": "s"}, {"type": "shell_call_output", "call_id": "s"}]
    reply = whole(response(*shell, message("Done.")))
    assert reply.message == {"role": "assistant", "content": "Done."}
    kinds = [item["type"] for item in reply.choices[0]["output"]]
    assert kinds == ["shell_call", "shell_call_output", "message"]


CUSTOM = {"type": "custom_tool_call", "call_id": "c"}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
outputs = st.lists(
    st.one_of(
        st.builds(message, texts),
        st.builds(message, texts, texts),
        st.builds(reasoning, texts, texts),
        st.builds(refusal, texts),
        st.builds(call, texts, texts),
        st.builds(lambda name, text: CUSTOM | {"name": name, "input": text}, texts, texts),
        st.just({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
    ),
    max_size=5,
)


def plain(value: Any) -> Any:
    """A message without empty parts, which nobody tells in pieces."""
    return value and step(value, None).identity


@given(outputs, st.integers(1, 9))
def test_the_deltas_alone_give_the_same_reply(output: list[Any], piece: int):
    body = response(*output)
    kinds = (b"output_item.done", b"response.completed")
    deltas = [event for event in events(body, piece) if not any(kind in event for kind in kinds)]
    ending = sse("response.completed", {"response": {**body, "output": []}})
    told, whole_told = streamed(*deltas, ending), whole(body)
    assert plain(told.message) == plain(whole_told.message)
    assert (told.finish_reason, told.usage) == (whole_told.finish_reason, whole_told.usage)


def test_items_that_nobody_counts_are_told_apart_by_their_names():
    """As llama.cpp streams them."""
    body = response(reasoning("Hm.", name="rs_1"), message("Hello", name="msg_1"))
    uncounted = []
    for event in events(body)[:-3]:
        kind, data = event.decode().removeprefix("event: ").split("\ndata: ")
        told = {key: value for key, value in orjson.loads(data).items() if not key.endswith("_index")}
        uncounted.append(sse(kind, told))
    assert streamed(*uncounted).message == whole(body).message


@given(outputs.filter(bool))
def test_what_comes_back_as_input_is_the_logged_reply(output: list[Any]):
    asked = user("Go.")
    reply = whole(response(*output)).message
    assert reply
    context = path(read(asked).messages)
    logged = step(reply, context[-1])
    for sent in (output, [{**item, "id": "other", "status": None} for item in output]):
        back = path(read(asked, *sent, user("On.")).messages)
        assert back[1].key == logged.key


def test_the_text_of_a_reply_comes_back_as_a_plain_message_too():
    reply = whole(response(reasoning("Hm."), message("Let me ", "see."))).message
    (back,) = read({"role": "assistant", "content": "Let me see."}).messages
    assert reply and step(back, None).identity == step(reply, None).identity
