"""Texts of messages, and tests of a reply without a model: is it near-empty, repetitive, on topic; are its calls sound?

They are crude on purpose. The gate only compares how often each is true of two versions on the same prompts. A measure
that is wrong on some replies is wrong on both sides alike. Of tool calls (in OpenAI's chat format) only names and
required parameters are checked, not the types of values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
Call = Mapping[str, Any]
Tool = Mapping[str, Any]

# "Yes." and "42" count as near-empty; the incumbent gives such answers as well, if they are right.
MIN_CHARACTERS = 4
# Windows of so many characters: longer than a common word with its spaces, shorter than a loop worth the name.
WINDOW = 8
# In a reply with fewer windows, repetition may be chance.
MIN_WINDOWS = 16
# English prose repeats 0–10 % of its windows, lists with a common beginning up to 35 %, loops 70 % and more.
MAX_REPEATED = 0.5
# Shorter words are mostly grammar.
MIN_WORD = 4
# "addresses" and "addressed" share it, "train" and "trains" too.
STEM = 5

# Refusals and flattery stand at the beginning.
OPENING = 160

_WORD = re.compile(r"[^\W_]+")
# English only; in other languages neither version is found to do it.
_REFUSAL = re.compile(
    r"\b(?:i(?: am|'m) (?:sorry|afraid|unable|not able)|i (?:cannot|can't|can not|won't|will not|must decline)|"
    r"as an ai\b|i'm just an? )"
)
_FLATTERY = re.compile(
    r"^\W*(?:(?:that's|that is|what) an? )?(?:very |really |truly |absolutely )?"
    r"(?:great|good|excellent|wonderful|fantastic|interesting|brilliant|amazing|fascinating|thoughtful) "
    r"(?:question|point|idea|choice|observation)|^\W*you(?:'re| are) (?:so |absolutely |completely |quite )?right\b"
)
_MARKUP = re.compile(r"^\s*(?:[-*•]|\d+[.)]|#{1,6}|```|\|)(?:\s|$)|\*\*\S", re.MULTILINE)
_GRAMMAR = """
about above after again also although always another answer around because been before being below between both
brief briefly came come could describe does doing done down during each else even ever every example explain few
find first five four from further gets give given goes good great have having help here hers himself into itself
just keep know last least less like list little long look made make many might more most much must name need never
next none only onto other ours over please question reply same sentence shall short should show simple some
something still such sure take tell than thank thanks that their theirs them themselves then there these they thing
things this those three through today told took toward turn under until upon very want well went were what when
where whether which while whom whose will with within without word words would write year your yours yourself
"""
_STOP = frozenset(_GRAMMAR.split())
# The tags of calls in common chat templates; an engine that parses a call removes them from the text.
_TAGS = re.compile(r"</?\|?tool_call|</?function[=>]|<\|python_tag\|>|\[TOOL_CALLS\]")


THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_text", "thought"})
"""Kinds of parts that are thoughts."""
MEDIA = frozenset(
    {
        "image", "images", "image_url", "input_image", "output_image", "image_generation_call", "computer_screenshot",
        "audio", "audio_url", "input_audio", "output_audio", "video", "videos", "video_url", "input_video",
        "file", "input_file", "container_upload", "inlineData", "fileData",
    }
)  # fmt: skip
"""Kinds of parts and of items that hold images, audio or files, and names of members of a message that do."""


def kind_of(part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind if isinstance(kind, str) else None


def is_media(part: Any) -> bool:
    """True of media, also inside a document or a block of results."""
    if not isinstance(part, Mapping):
        return False
    content, source = part.get("content"), part.get("source")
    if kind_of(part) == "document" and isinstance(source, Mapping):
        return source.get("type") not in ("text", "content") or is_media(source)
    return kind_of(part) in MEDIA or (isinstance(content, list) and any(map(is_media, content)))


def text_of(message: Message) -> str:
    """Return the text of a message; text parts are joined by newlines, as llama.cpp joins them."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(_texts(content))
    return str(content or "")


def _texts(parts: Sequence[Any]) -> Iterator[str]:
    """Yield the texts of parts. Of other blocks, an engine gets the JSON (``proxy.surfaces.asking``), so it is that."""
    for part in parts:
        if is_text(part):
            yield part["text"]
        elif isinstance(part, Mapping) and kind_of(part) not in NO_WORDS and not is_media(part):
            source = part.get("source")
            if kind_of(part) == "document" and isinstance(source, Mapping):
                inner = source.get("content")
                yield from (
                    _texts(inner) if isinstance(inner, list) else [str(source.get("data") or inner or "")]
                )
            else:
                yield json.dumps(part, ensure_ascii=False, separators=(",", ":"))


NO_WORDS = THOUGHTS | {"refusal", "tokens", "suffix"}
"""Kinds of parts without text for an engine."""


def is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str) and kind_of(part) not in THOUGHTS


def last_question(messages: Sequence[Message]) -> str:
    """Return the text of the last user message, empty if there is none."""
    return text_of(next((message for message in reversed(messages) if message.get("role") == "user"), {}))


def near_empty(reply: str) -> bool:
    """Fewer than ``MIN_CHARACTERS`` letters and digits."""
    return sum(character.isalnum() for character in reply) < MIN_CHARACTERS


def repetitive(reply: str) -> bool:
    """More than ``MAX_REPEATED`` of its character n-grams are repeats (any script, any language)."""
    text = " ".join(reply.lower().split())
    windows = [text[place : place + WINDOW] for place in range(len(text) - WINDOW + 1)]
    return len(windows) >= MIN_WINDOWS and 1 - len(set(windows)) / len(windows) > MAX_REPEATED


def topics(prompt: str) -> frozenset[str]:
    """Return the stems of the content words."""
    words = _WORD.findall(prompt.lower())
    return frozenset(word[:STEM] for word in words if len(word) >= MIN_WORD and word not in _STOP)


def on_topic(reply: str, stems: frozenset[str]) -> bool:
    return any(word.startswith(stem) for word in _WORD.findall(reply.lower()) for stem in stems)


def sound(reply: str, question: str) -> bool:
    """Neither near-empty nor repetitive, and on topic if the question has one."""
    stems = topics(question)
    return not (near_empty(reply) or repetitive(reply)) and (not stems or on_topic(reply, stems))


def refuses(reply: str) -> bool:
    return bool(_REFUSAL.search(_opening(reply)))


def asks_back(reply: str) -> bool:
    return reply.rstrip(" \t\n\"'”’»)*").endswith(("?", "？", "؟"))


def flatters(reply: str) -> bool:
    """It begins with praise of the user."""
    return bool(_FLATTERY.search(_opening(reply)))


def marked_up(reply: str) -> bool:
    """It has list items, headings, tables, fences or bold words."""
    return bool(_MARKUP.search(reply))


def _opening(reply: str) -> str:
    return reply.strip()[:OPENING].lower().replace("’", "'")


def broken(call: Call, tools: Sequence[Tool]) -> bool:
    """A call can't be run: unknown tool, arguments that aren't a JSON object, or required ones missing."""
    called, arguments = _function(call).get("name"), _arguments(_function(call))
    offered = [tool for tool in tools if isinstance(called, str) and _function(tool).get("name") == called]
    return not offered or arguments is None or not _required(offered[0]) <= arguments.keys()


def left_in_text(text: str) -> bool:
    """A text holds a call that the engine didn't parse, in a template's tags or as bare JSON."""
    return bool(_TAGS.search(text)) or _is_bare_call(text)


def readable(call: Call) -> str:
    """Return a call for people, e.g. ``→ weather(city="Paris", days=3)``; a broken one as far as possible."""
    function = _function(call)
    arguments = _arguments(function)
    if arguments is None:
        inside = str(function.get("arguments") or "")
    else:
        inside = ", ".join(
            f"{key}={json.dumps(argument, ensure_ascii=False)}" for key, argument in arguments.items()
        )
    return f"→ {function.get('name') or '(no name)'}({inside})"


def _function(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the function of a tool or of a call; empty if it has none."""
    function = holder.get("function")
    return function if isinstance(function, Mapping) else {}


def _required(tool: Tool) -> frozenset[str]:
    parameters = _function(tool).get("parameters")
    names = parameters.get("required") if isinstance(parameters, Mapping) else None
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _arguments(function: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a call; None if they aren't a JSON object."""
    arguments = function.get("arguments")
    if arguments in (None, ""):  # some engines write this if a tool takes no arguments
        return {}
    return arguments if isinstance(arguments, dict) else _json_object(arguments)


def _is_bare_call(text: str) -> bool:
    call = _json_object(text) or {}
    return isinstance(call.get("name"), str) and bool(call.keys() & {"arguments", "parameters"})


def _json_object(text: Any) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
