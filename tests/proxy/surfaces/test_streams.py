"""Streams of every format, split and cut off at every position, and written in every way that the format allows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.proxy.surfaces import SURFACES, Reply, surface_at
from burnish.proxy.surfaces.arriving import Arriving
from burnish.proxy.surfaces.gemini_contents import snake
from burnish.proxy.surfaces.sse import BYTE_ORDER_MARK
from tests.proxy.surfaces.test_answers import ANSWERS
from tests.support.recorded import ARGUMENTS, RECORDED, TEXT, THOUGHT, Json, Recorded

HALF = "\ufffd"
"""What there is of a character of which half has come."""

every_stream = pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)


def read(recorded: Recorded, *chunks: bytes) -> Reply:
    return SURFACES[recorded.surface].reassemble(chunks, recorded.content_type, "")


def texts(reply: Reply) -> tuple[str, str]:
    def text(value: Any) -> str:
        parts = value if isinstance(value, list) else [{"text": value}]
        return "".join(part.get("text") or "" for part in parts)

    message = reply.message or {}
    return message.get("reasoning_content") or "", text(message.get("content"))


@every_stream
def test_it_is_read_whole(recorded: Recorded) -> None:
    reply = read(recorded, recorded.body)
    thoughtless = recorded.surface == "completions"
    assert texts(reply) == ("" if thoughtless else THOUGHT, TEXT)
    if recorded.surface not in ("completions", "ollama_generate") and not recorded.fails:
        assert reply.message
        first, second = (call["function"] for call in reply.message["tool_calls"])
        assert (first["name"], orjson.loads(first["arguments"])) == ("look", ARGUMENTS)
        assert second["name"] == "look"
    assert (reply.complete, reply.readable) == (not recorded.fails, True)
    assert (reply.error is not None and "out of memory" in reply.error) is recorded.fails


HALVED = {name: each for name, each in RECORDED.items() if b"\\ude00" in each.body}


@pytest.mark.parametrize("recorded", HALVED.values(), ids=HALVED)
def test_half_an_emoji_that_comes_alone_is_replaced(recorded: Recorded) -> None:
    alone = read(recorded, recorded.body.replace(b"\\ude00", b"", 1))
    assert texts(alone)[1] == TEXT.replace("😀", HALF)


@every_stream
def test_split_at_every_position_it_says_the_same(recorded: Recorded) -> None:
    body = recorded.body
    whole = read(recorded, body)
    assert all(read(recorded, body[:at], body[at:]) == whole for at in range(len(body)))
    assert read(recorded, *(body[at : at + 1] for at in range(len(body)))) == whole


@every_stream
def test_cut_off_at_every_position_it_says_what_had_come(recorded: Recorded) -> None:
    body = recorded.body
    whole = read(recorded, body)
    before = ("", "")
    for at in range(len(body)):
        reply = read(recorded, body[:at])
        said = texts(reply)
        for text, least, most in zip(said, before, texts(whole), strict=True):
            assert most.startswith(text.removesuffix(HALF))
            assert len(text) >= len(least.removesuffix(HALF))
        before = said
        # What is not whole is not taken for it, nor for damaged.
        assert not reply.complete or (reply.message, recorded.fails) == (whole.message, False)
        assert reply.readable or reply.message is None


WAYS: dict[str, Callable[[str], str]] = {
    "comments between events": lambda frame: f": ping\n\n{frame}",
    "an id in each event": lambda frame: f"id: 1\n{frame}",
    "pings": lambda frame: f'{frame}event: ping\ndata: {{"type": "ping"}}\n\n',
    "no space": lambda frame: frame.replace("data: ", "data:", 1),
    "the standard's other line end": lambda frame: frame.replace("\n", "\r\n"),
    "two blank lines": lambda frame: f"{frame}\n",
}
STREAMS = {
    f"{surface}: {name}": answer
    for surface, answers in ANSWERS.items()
    for name, answer in answers.items()
    if all(frame.endswith("\n\n") for frame in answer["frames"])
}


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=25)
@given(
    ways=st.sets(st.sampled_from(sorted(WAYS))),
    content_type=st.sampled_from(["text/event-stream", "text/plain", "application/octet-stream"]),
    mark=st.sampled_from([b"", BYTE_ORDER_MARK]),
    share=st.floats(0, 1),
)
def test_however_it_is_written_and_cut_it_says_what_had_come(
    name: str, ways: set[str], content_type: str, mark: bytes, share: float
) -> None:
    answer = STREAMS[name]
    surface = surface_at(answer["path"].partition("?")[0])
    assert surface

    def read_as(*body: bytes, content_type: str = content_type) -> Reply:
        return surface.reassemble(body, content_type, "")

    plain = read_as("".join(answer["frames"]).encode(), content_type="text/event-stream")
    frames = answer["frames"]
    for way in sorted(ways):
        frames = list(map(WAYS[way], frames))
    body = mark + "".join(frames).encode()
    assert replace(read_as(body), usage=plain.usage) == plain
    cut = read_as(body[: int(share * len(body))])
    for text, most in zip(texts(cut), texts(plain), strict=True):
        assert most.startswith(text.removesuffix(HALF))
    assert not cut.complete or cut.message == plain.message


@dataclass(frozen=True)
class Objects:
    """A stream of Ollama's or Gemini's as its objects, which may be written in several ways."""

    surface: str
    parts: tuple[Json, ...]

    def read(self, *body: bytes, content_type: str = "") -> Reply:
        return SURFACES[self.surface].reassemble(body, content_type, "")


def objects_in(frames: Iterable[str]) -> tuple[Json, ...]:
    return tuple(json.loads(frame.removeprefix("data: ")) for frame in frames)


OBJECTS = {
    name: Objects(each.surface, objects_in(part.decode() for part in each.parts))
    for name, each in RECORDED.items()
    if each.surface.startswith(("ollama", "gemini")) and name != "gemini, an array"
} | {
    f"{group}: {name}": Objects(surface, objects_in(answer["frames"]))
    for group, surface in (("ollama", "ollama_chat"), ("gemini", "gemini"))
    for name, answer in ANSWERS[group].items()
}


def written_by_keys(value: Any, rename: Callable[[str], str] = str, order: int = 1) -> Any:
    """A value with other names of members, in the same (1) or in the other (-1) order. Arguments stay as they are."""
    if isinstance(value, dict):
        members = [*value.items()][::order]
        return {
            rename(name): member if name in ("arguments", "args") else written_by_keys(member, rename, order)
            for name, member in members
        }
    return [written_by_keys(each, rename, order) for each in value] if isinstance(value, list) else value


def in_halves(part: Json, *names: str) -> list[Json]:
    """An object of Ollama's as two, with half of each text in each."""
    holder = part.get("message", part)
    texts = {name: holder[name] for name in names if holder.get(name)}
    first = {name: text[: len(text) // 2] for name, text in texts.items()}
    second = {**holder, **{name: text[len(text) // 2 :] for name, text in texts.items()}}
    halves = ({**second, "tool_calls": [], **first}, second) if texts else (holder,)
    return [{**part, "message": half} if "message" in part else half for half in halves]


def with_candidate(part: Json, change: Callable[[Json], list[Json]]) -> list[Json]:
    """An object of Gemini's with its candidate written otherwise, if it has one."""
    return [{**part, "candidates": [each]} for old in part.get("candidates", ()) for each in change(old)] or [
        part
    ]


def part_by_part(candidate: Json) -> list[Json]:
    *first, last = candidate.get("content", {}).get("parts") or [None]
    return [
        *({"index": 0, "content": {"parts": [part], "role": "model"}} for part in first),
        {**candidate, "content": {"parts": [last], "role": "model"}} if last else candidate,
    ]


def bare(candidate: Json) -> list[Json]:
    """Without what may be left out."""
    content = {"content": {"parts": candidate["content"]["parts"]}} if "content" in candidate else {}
    return [{name: member for name, member in candidate.items() if name != "index"} | content]


def signed(candidate: Json) -> list[Json]:
    """With an empty part that only has a signature, and with texts that say that they are no thoughts."""
    parts = candidate.get("content", {}).get("parts", ())
    parts = [{"thought": False, **part} if "text" in part else part for part in parts]
    parts.append({"text": "", "thoughtSignature": "c2ln"})
    return [{**candidate, "content": {"role": "model", "parts": parts}}]


COUNTED = {"usageMetadata": {"promptTokenCount": 17}, "modelVersion": "m"}
ANY_FORMAT: dict[str, Callable[[Json], list[Json]]] = {
    "members that nobody knows": lambda part: [{"trace": {"text": "no", "parts": [{"text": "no"}]}, **part}],
    "nulls": lambda part: [{"error": None, "logprobs": None} | part],
    "the other order": lambda part: [written_by_keys(part, order=-1)],
}
OBJECT_WAYS = {
    "ollama": ANY_FORMAT | {"texts in halves": lambda part: in_halves(part, "content", "response", "thinking")},
    "gemini": ANY_FORMAT | {
        "snake_case": lambda part: [written_by_keys(part, snake)],
        "counts in between": lambda part: [COUNTED, part],
        "part by part": lambda part: with_candidate(part, part_by_part),
        "bare": lambda part: with_candidate(part, bare),
        "signed": lambda part: with_candidate(part, signed),
    },
}  # fmt: skip
LAYOUTS = {
    "ollama": [("", "\n", "\n"), ("", "\r\n", "\r\n"), ("\n", "\n\n", ""), ("", " \n ", "\n")],
    "gemini": [
        ("data: ", "\r\n\r\ndata: ", "\r\n\r\n"), ("data:", "\n\ndata:", "\n\n"),
        ("[", "\n,\r\n", "\n]"), ("[\n", ",\n", "]"), ("[", ",", "]\n"),
    ],
}  # fmt: skip
"""Before the first object, between two, and behind the last one."""


def calls(reply: Reply) -> list[Any]:
    return [call["function"] for call in (reply.message or {}).get("tool_calls") or ()]


@pytest.mark.parametrize("name", OBJECTS)
@settings(max_examples=25)
@given(data=st.data(), share=st.floats(0, 1))
def test_however_its_objects_are_written_and_cut_they_say_what_had_come(
    name: str, data: st.DataObject, share: float
) -> None:
    objects = OBJECTS[name]
    group = objects.surface.partition("_")[0]
    plain = objects.read(b"\n".join(json.dumps(part).encode() for part in objects.parts))
    parts = [*objects.parts]
    for way in data.draw(st.lists(st.sampled_from(sorted(OBJECT_WAYS[group])), unique=True)):
        parts = [each for part in parts for each in OBJECT_WAYS[group][way](part)]
    before, between, behind = data.draw(st.sampled_from(LAYOUTS[group]))
    indent = data.draw(st.sampled_from([None, 2])) if before.startswith("[") else None
    escaped = data.draw(st.booleans()) or name in HALVED
    written = between.join(json.dumps(part, ensure_ascii=escaped, indent=indent) for part in parts)
    content_type = data.draw(st.sampled_from(["", "text/plain", "application/json", "text/event-stream"]))
    body = f"{before}{written}{behind}".encode()
    assert replace(objects.read(body, content_type=content_type), usage=plain.usage) == plain

    at = int(share * len(body))
    cut = objects.read(body[:at], content_type=content_type)
    for text, most in zip(texts(cut), texts(plain), strict=True):
        assert most.startswith(text.removesuffix(HALF))
    assert calls(cut) == calls(plain)[: len(calls(cut))]
    assert not cut.complete or cut.message == plain.message

    arriving = Arriving(objects.surface, content_type, "")
    shown = [arriving.feed(piece) for piece in (body[: max(at, 16)], body[max(at, 16) :])]
    assert "".join(each.text for each in shown) == texts(plain)[1]
    assert [tool for each in shown for tool in each.tools] == [call["name"] for call in calls(plain)]
