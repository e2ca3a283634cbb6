"""Anthropic Messages: what is read, what is put together from the wire, what is answered locally."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.log.tree import path
from burnish.proxy.rl.commands import exchanges, find_command
from burnish.proxy.surfaces import ChatRequest, Messages, Reply
from tests.proxy.log.exchanges import assistant, user
from tests.support.anthropic_wire import USAGE, event, message, message_events, text, thinking, tool_use
from tests.support.chat_wire import called

messages = Messages()
REMINDER = "<system-reminder>\nToday is Monday.\n</system-reminder>"


def read(*items: Any, **more: Any) -> ChatRequest:
    return messages.read({"model": "m", "max_tokens": 9, "messages": list(items), **more})


def result(content: Any, id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def streamed(*chunks: bytes) -> Reply:
    return messages.reassemble(chunks, "text/event-stream; charset=utf-8", "")


def whole(body: dict[str, Any]) -> Reply:
    return messages.reassemble([orjson.dumps(body)], "application/json", "")


def test_reads_model_stream_system_and_keeps_the_rest_as_parameters():
    request = read(user("hi"), stream=True, system="Be brief.", temperature=0.5, new=1)
    assert request.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert request.origins == (-1, 0)
    assert (request.model, request.stream) == ("m", True)
    assert request.params == {"max_tokens": 9, "stream": True, "temperature": 0.5, "new": 1}


def test_texts_stay_parts_and_a_single_one_is_the_text():
    request = read(user([text(REMINDER), text("hi") | {"cache_control": {"type": "ephemeral"}}]))
    assert request.messages[0]["content"] == [text(REMINDER), text("hi")]
    assert read(user([text("hi")])).messages == read(user("hi")).messages == [user("hi")]


def test_a_system_prompt_of_blocks_loses_the_line_that_no_two_requests_share():
    billing = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=%s;"
    prompt = [text("You are helpful."), text("Be brief.")]
    first, second = (read(user("hi"), system=[text(billing % n), *prompt]) for n in ("fa690", "1c8b4"))
    assert first.messages == second.messages
    assert first.messages[0]["content"] == prompt
    assert first.params["billing"] == billing % "fa690", "llama.cpp gets it"
    assert read(user("hi"), system=[text(billing % "1")]).origins == (0,)
    in_one = read(user("hi"), system=f"{billing % '1'}\nYou are helpful.").messages[0]
    assert in_one == {"role": "system", "content": "You are helpful."}


def test_images_become_urls_and_what_chat_does_not_know_stays_what_it_is():
    data = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    link = {"type": "image", "source": {"type": "url", "url": "http://x.example/a.png"}}
    file = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    paper = {"type": "document", "source": {"type": "text", "data": "words"}, "title": "Paper"}
    request = read(user([data, link, file, paper]), user([result([data, text("a picture")])]))
    parts = request.messages[0]["content"]
    urls = ("data:image/png;base64,aGk=", "http://x.example/a.png")
    assert parts[:2] == [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    assert parts[2:] == [file, paper]
    assert request.messages[1]["content"] == [parts[0], text("a picture")]


def test_parameters_that_training_uses_are_in_chats_form():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    search = {"type": "web_search_20250305", "name": "web_search"}
    params = read(
        user("hi"),
        tools=[{"name": "look", "description": "Looks.", "input_schema": schema}, search],
        tool_choice={"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
    ).params
    function = {"name": "look", "description": "Looks.", "parameters": schema}
    assert params["tools"] == [{"type": "function", "function": function}, search]
    assert params["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert params["parallel_tool_calls"] is False
    assert params["stop"] == ["END"]


@pytest.mark.parametrize(("kind", "said"), [("auto", "auto"), ("any", "required"), ("none", "none")])
def test_tool_choices_are_said_in_chats_words(kind: str, said: str):
    assert read(user("hi"), tool_choice={"type": kind}).params["tool_choice"] == said


@pytest.mark.parametrize(
    "last",
    [user("/rl good"), user([text(REMINDER), text("/rl good")]), user([result("rain"), text("/rl good")])],
)
def test_a_command_is_found_as_the_whole_of_what_a_human_said(last: dict[str, Any]):
    assert find_command(read(user("hi"), assistant("yes?"), last).messages)


def test_a_command_elsewhere_is_none():
    """And in all that test_poison.py sends."""
    for parts in ([result([text("/rl good")])], [text(REMINDER.replace("Today", "/rl good")), text("hi")]):
        assert find_command(read(assistant("yes?"), user(parts)).messages) is None


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_earlier_commands_are_cut_and_results_beside_them_stay(system: str | None):
    before = [user("weather?"), assistant([tool_use("look", {})])]
    answered = user([result("rain"), text(REMINDER), text("/rl good")])
    rated = assistant([text("burnish: rated good")])
    asked = (user("/rl status"), assistant("burnish: up"), user("go on"))
    body = {"model": "m", "system": system, "messages": [*before, answered, rated, *asked]}
    request = messages.read(body)
    sent = messages.without(body, request, exchanges(request.messages))
    assert sent == body | {"messages": [*before, user([result("rain")]), user("go on")]}


def test_a_history_of_nothing_but_a_command_is_not_left_empty():
    body = {"messages": [user("/rl good"), assistant("burnish: nothing was rated")]}
    request = messages.read(body)
    assert messages.without(body, request, exchanges(request.messages)) == body


CONTENT = [thinking("They want rain."), text("Let me look at the "), text("weather – 😀.")]
CONTENT += [tool_use("look", {"city": "Köln", "days": [1, 2]}), tool_use("stop", {}, "toolu_2")]


def test_a_stream_and_a_whole_answer_give_the_same():
    reply = whole(message(*CONTENT, stop_reason="tool_use"))
    assert reply == streamed(*message_events(*CONTENT, stop_reason="tool_use"))
    look = called("look", {"city": "Köln", "days": [1, 2]}, "toolu_1")
    more = {"tool_calls": [look, called("stop", {}, "toolu_2")], "reasoning_content": "They want rain."}
    assert reply.message == assistant("Let me look at the weather – 😀.") | more
    assert (reply.finish_reason, reply.response_id, reply.complete) == ("tool_calls", "msg_1", True)
    assert reply.usage == USAGE | {"prompt_tokens": 17, "completion_tokens": 7}


ENDINGS = {
    "stop": ("end_turn",),
    "stop_sequence": ("stop_sequence",),
    "length": ("max_tokens", "model_context_window_exceeded"),
    **{"tool_calls": ("tool_use",), "content_filter": ("refusal",), "pause_turn": ("pause_turn",)},
}


@pytest.mark.parametrize("ours", ENDINGS)
def test_why_it_ended_is_said_in_chats_words(ours: str):
    for reason in ENDINGS[ours]:
        assert whole(message(text("a"), stop_reason=reason)).finish_reason == ours


def test_citations_are_kept_beside_the_text_and_change_nothing_of_it():
    place = {"type": "char_location", "cited_text": "w", "document_index": 0}
    reply = streamed(
        event("content_block_start", index=0, content_block=text("") | {"citations": []}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "words"}),
        event("content_block_delta", index=0, delta={"type": "citations_delta", "citation": place}),
        event("message_stop"),
    )
    assert reply.message == {"role": "assistant", "content": [text("words") | {"citations": [place]}]}
    assert path([reply.message])[0].identity == path([assistant("words")])[0].identity


def test_a_servers_own_tools_stay_parts_in_their_place():
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    reply = streamed(
        event("content_block_start", index=0, content_block=use),
        event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"q":1}'}),
        event("content_block_start", index=1, content_block=text("found")),
        event("message_stop"),
    )
    parts = [use | {"input": {"q": 1}}, text("found")]
    assert reply.message == assistant(parts)
    assert read(assistant(parts)).messages == [assistant(parts)]


def test_events_that_nobody_knows_are_passed_over_and_other_fields_may_come():
    parts = message_events(text("a b"))
    parts[2:2] = [event("weather", index=0), event("content_block_delta", index=0, delta={"type": "new"})]
    parts[2:2] = [event("content_block_delta", index=0, delta=None), event("message_delta", delta=None)]
    parts[2:2] = [event("content_block_delta", index=0, delta={"type": "compaction_delta"})]
    parts.insert(9, event("content_block_delta", index=0, delta={"type": "new", "new": 1}))
    parts.insert(1, b": a comment\n\nevent: ping\ndata: not JSON\n\n")
    assert streamed(*parts) == streamed(*message_events(text("a b")))


def test_an_error_inside_a_stream_is_told_and_the_stream_has_not_ended():
    told = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    reply = streamed(*message_events(text("a"))[:5], told, event("message_stop"))
    assert reply.message == assistant("a")
    assert (reply.error, reply.complete) == ("Overloaded", False)
    assert streamed(told) == streamed(told.partition(b"\n")[2]) == Reply(error="Overloaded")
    assert streamed(b"event: error\ndata: out of memory\n\n") == Reply(error="out of memory")


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
inputs = st.dictionaries(words, st.integers(-9, 9) | words | st.lists(words, max_size=2), max_size=3)
blocks = st.builds(text, words) | st.builds(thinking, words) | st.builds(tool_use, words, inputs)
contents = st.lists(blocks, max_size=5)


@given(contents, st.integers(1, 6), st.integers(1, 9))
def test_any_stream_says_what_the_whole_answer_says(content: list[dict[str, Any]], delta: int, chunk: int):
    body = b"".join(message_events(*content, size=delta))
    chunks = [body[start : start + chunk] for start in range(0, len(body), chunk)]
    assert streamed(*chunks) == whole(message(*content))


@given(contents)
def test_every_reply_is_found_again(content: list[dict[str, Any]]):
    """When it is sent back: marked for a cache, with its thoughts or without."""
    reply = whole(message(*content)).message
    assert reply
    logged = path([user("hi"), reply])[-1]
    for with_thoughts in (True, False):
        again = [block for block in content if with_thoughts or block["type"] != "thinking"]
        marked = [*again[:-1], *(block | {"cache_control": {"type": "ephemeral"}} for block in again[-1:])]
        known = path(read(user("hi"), assistant(marked)).messages)[-1]
        assert (known.identity, known.key) == (logged.identity, logged.key)
        assert known.content == logged.content or not with_thoughts


shown = st.builds(result, words) | st.just({"type": "image"})
any_blocks = st.lists(st.builds(text, words) | st.builds(tool_use, words, inputs) | shown, max_size=4)
any_items = st.lists(st.builds(user, any_blocks) | st.builds(assistant, any_blocks), max_size=4)


@given(any_items)
def test_any_message_can_be_cut_from_a_body(items: list[Any]):
    request = messages.read({"messages": items})
    every = range(len(request.messages))
    assert messages.without({"messages": items}, request, set(every)) == {"messages": items}
    # Results of tools are never cut by themselves.
    for cut in (index for index in every if request.messages[index]["role"] != "tool" and len(every) > 1):
        left = messages.read(messages.without({"messages": items}, request, {cut})).messages
        assert left == [request.messages[index] for index in every if index != cut]


@pytest.mark.parametrize("status", [503, 529])
def test_an_overload_has_anthropics_own_name(status: int) -> None:
    assert messages.error_of(status, "Overloaded")["error"]["type"] == "overloaded_error"
