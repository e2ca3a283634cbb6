"""Messages are the same when they say the same, and a path is found again however a client dressed it."""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from burnish.proxy.log.tree import (
    DIGEST_BYTES,
    RECENT_MESSAGES,
    begins_turn,
    last_user_message,
    loaded,
    path,
    step,
    stored,
)
from burnish.proxy.messages import text_of, words


def called(arguments: str, name: str = "f") -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


CALL = called('{"a": [1, 2], "b": "x"}')
CALLS = {"content": None, "tool_calls": [CALL]}
PARIS = {"content": "Paris"}


def picture(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def identity(message: dict[str, Any]) -> bytes:
    return step(message, None).identity


@pytest.mark.parametrize(
    ("captured", "sent_back"),
    [
        (PARIS, {"content": [{"type": "text", "text": "Paris", "cache_control": {"type": "ephemeral"}}]}),
        (PARIS | {"refusal": None, "annotations": []}, PARIS),
        (PARIS | {"reasoning_content": "hm"}, PARIS),
        ({"content": "<think>hm</think>\n\nParis"}, PARIS),
        ({"content": "Paris\n"}, PARIS),
        (PARIS, PARIS | {"name": "helper", "tool_calls": []}),
        (CALLS, {"content": "", "tool_calls": [CALL]}),
        (CALLS, {"tool_calls": [called('{"b":"x","a":[1,2]}')]}),
        (CALLS, {"tool_calls": [called('{"a": [1.0, 2e0], "b": "x"}')]}),
    ],
)
def test_a_reply_is_known_again_as_clients_send_it_back(captured: dict[str, Any], sent_back: dict[str, Any]):
    assert identity({"role": "assistant", **captured}) == identity({"role": "assistant", **sent_back})


@pytest.mark.parametrize("number", [0, 1, -1, 2**53, 10**18, 10**19, -(2**63), 10**20, 10**21, -(10**19)])
def test_equal_numbers_are_the_same_however_they_are_written(number: int):
    written = {str(number), f"{number}.0", f"{float(number)!r}", f"{number}e0"}
    calls = [{"function": {"name": "f", "arguments": f'{{"a": [{each}]}}'}} for each in written]
    assert len({identity({"role": "assistant", "tool_calls": [call]}) for call in calls}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}),
        ({"role": "user", "content": "a"}, {"role": "user", "content": "b"}),
        ({"role": "user", "content": "<think>x</think>a"}, {"role": "user", "content": "a"}),
        ({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "a", "tool_calls": [CALL]}),
        ({"role": "assistant", "function_call": CALL["function"]}, {"role": "assistant", "content": ""}),
        *(
            ({"role": "assistant", "tool_calls": [one]}, {"role": "assistant", "tool_calls": [other]})
            for one, other in (
                (CALL, called('{"a": [1, 2], "b": "x"}', "g")),
                (called('{"a": 1}'), called('{"a": 1.5}')),
                (called('{"a": 1}'), called('{"a": true}')),
                (called('{"a": 1}'), called('{"a": "1"}')),
                (called('{"a": 0}'), called('{"a": null}')),
            )
        ),
        (picture("data:1"), picture("data:2")),
    ],
)
def test_messages_that_say_different_things_differ(one: dict[str, Any], other: dict[str, Any]):
    assert identity(one) != identity(other)


def test_what_is_stored_says_all_that_was_sent_but_what_is_empty():
    parts = [{"type": "text", "text": "hi", "cache_control": {}}]
    sent: dict[str, Any] = {"role": "assistant", "content": parts, "refusal": None, "tool_calls": []}
    sent["reasoning_content"] = "hm"
    assert stored(sent) == {"role": "assistant", "content": "hi", "reasoning_content": "hm"}


def test_loading_gives_a_content_again():
    for message in ({"role": "user", "content": ""}, {"role": "assistant", **CALLS}):
        assert loaded(orjson.dumps(stored(message)))["content"] == message["content"]


def test_digests_are_compact_and_chained():
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    one, other = path(messages), path([{"role": "user", "content": "x"}, messages[1]])
    digests = [value for said in one for value in (said.content, said.identity, said.node, said.key)]
    assert {len(each) for each in digests} == {DIGEST_BYTES}
    assert one[1].identity == other[1].identity
    assert one[1].key != other[1].key
    assert one[1].node != other[1].node


def test_text_of_joins_text_and_leaves_out_pictures():
    first, last = ({"type": "text", "text": text} for text in "ab")
    assert text_of({"role": "user", "content": [first, {"type": "image_url", "image_url": {}}, last]}) == "ab"
    assert text_of({"role": "assistant"}) == ""


texts = st.text(max_size=12)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.sampled_from(["type", "text"]), inner, max_size=3)
    ),
    max_leaves=8,
)
odd_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"])},
    optional={"content": anything, "tool_calls": anything, "function_call": anything, "name": anything},
)


@given(odd_messages)
@example({"role": "user", "content": [{"type": ["text"], "text": "hi"}]})
def test_no_message_breaks_the_tree(message: dict[str, Any]):
    before = copy.deepcopy(message)
    (said,) = path([message])
    assert message == before
    assert path([loaded(said.body)])[0].identity == said.identity
    assert isinstance(text_of(message), str)
    assert words(message) == words(loaded(said.body))


calls = st.builds(lambda name, value: called(orjson.dumps(value).decode(), name), texts, anything)
plain_replies = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": texts.filter(lambda text: "<think>" not in text)},
    optional={"tool_calls": st.lists(calls, min_size=1, max_size=2)},
)


def in_javascript(value: Any) -> Any:
    """Return a value as JavaScript has it after reading it: there is but one kind of number."""
    match value:
        case float():
            return int(value) if value.is_integer() and abs(value) < 1e21 else value
        case dict():
            return {name: in_javascript(each) for name, each in value.items()}
        case list():
            return [in_javascript(each) for each in value]
        case _:
            return value


def rewritten(reply: dict[str, Any], choices: st.DataObject) -> dict[str, Any]:
    """Send a reply back as some client would."""
    message = dict(reply)
    if choices.draw(st.booleans(), "as parts"):
        middle = len(message["content"]) // 2
        halves = (message["content"][:middle], message["content"][middle:])
        message["content"] = [{"type": "text", "text": half} for half in halves]
    if choices.draw(st.booleans(), "with nulls"):
        message |= {"refusal": None, "audio": None, "annotations": []}
    if choices.draw(st.booleans(), "with another name"):
        message["name"] = "agent"
    calls = message.get("tool_calls")
    if calls and choices.draw(st.booleans(), "calls written anew"):
        functions = [call["function"] for call in calls]
        values = [in_javascript(json.loads(each["arguments"])) for each in functions]
        message["tool_calls"] = [
            called(json.dumps(value, indent=1), each["name"]) | {"id": "other"}
            for each, value in zip(functions, values, strict=True)
        ]
    return message


@given(st.lists(plain_replies, min_size=1, max_size=4), st.data())
def test_rewritten_histories_have_the_same_keys(replies: list[dict[str, Any]], choices: st.DataObject):
    history: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    for number, reply in enumerate(replies):
        history += [{"role": "user", "content": f"q{number}"}, reply]
        parts = [{"type": "text", "text": f"q{number}"}]
        again += [{"role": "user", "content": parts}, rewritten(reply, choices)]
    assert [said.key for said in path(history)] == [said.key for said in path(again)]


REMINDER = "<system-reminder>\nIt is Monday.\n</system-reminder>"
CODEX = "<environment_context>\n  <cwd>/home</cwd>\n</environment_context>"
CODEX_AGENT = '<subagent_notification>\n{"status":{"completed":"Hi"}}\n</subagent_notification>'
QWEN_AGENT = "<task-notification>\n<task-id>1</task-id>\n<result>Hi</result>\n</task-notification>"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Hi", "Hi"),
        ("[Sat 2026-11-21 03:19 UTC] Hi", "Hi"),
        ("<b>Hi</b>", "<b>Hi</b>"),
        (f"{REMINDER} Hi {REMINDER}", "Hi"),
        (f"Hi {REMINDER}", "Hi"),
        (REMINDER, ""),
        (f"{REMINDER}\n{REMINDER}", ""),
        ("<system-reminder>Hi", "<system-reminder>Hi"),
        (f"\n{CODEX}\n", ""),
        (CODEX_AGENT, ""),
        (QWEN_AGENT, ""),
        (f"What is {QWEN_AGENT}", f"What is {QWEN_AGENT}"),
        ("# AGENTS.md instructions for /home\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>", ""),
        ([{"type": "text", "text": part} for part in (REMINDER, "Hi ", "there", REMINDER)], "Hi there"),
        ([{"type": "text", "text": REMINDER}], ""),
        ([{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "data:1"}}], "Hi"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_person_is_told_from_what_clients_say_on_their_own(content: Any, said: str):
    message = {"role": "user", "content": content}
    assert words(message) == said
    assert step(message, None).human is bool(said)
    assert not step({**message, "role": "tool"}, None).human


def test_a_picture_alone_is_a_person():
    assert step(picture("data:1"), None).human
    assert words(picture("data:1")) == ""


def test_a_turn_begins_with_a_person():
    roles = {"s": "system", "u": "user", "r": "user", "t": "tool", "a": "assistant"}
    said: dict[str, dict[str, Any]] = {name: {"role": role, "content": "Hi"} for name, role in roles.items()}
    said |= {"r": {"role": "user", "content": REMINDER}, "c": {"role": "assistant", **CALLS}}
    at = {"": None, "s": None, "su": 1, "ur": 0, "suctr": None, "uct": None, "uau": 2, "uauru": 4, "uarus": 3}
    for context, place in at.items():
        steps = path([said[each] for each in context])
        assert begins_turn(steps) is ("c" not in context)
        if place is not None:
            assert last_user_message(steps) is steps[place]
    assert last_user_message(path([said["r"]])) is not None


def test_a_context_that_is_too_long_to_remember_has_the_same_steps() -> None:
    token = "gh" + "p_abcdefghijklmnopqrstuvwxyz0123456789"
    texts = ["Hi.", token, *(str(number) for number in range(RECENT_MESSAGES))]
    messages = [{"role": "user", "content": text} for text in texts]
    steps = [step(messages[0], None)]
    for message in messages[1:]:
        steps.append(step(message, steps[-1]))
    assert path(messages) == steps
    assert [each.credential for each in steps[:3]] == [False, True, True]
    assert steps[-1].credential
