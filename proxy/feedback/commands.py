"""The grammar of ``/rl``, pure: is the last human turn a command, and which; and which turns of a history were one.

A command is honoured only as the whole of the last human turn. What clients wrap around it is taken off by
exact pattern; anything else around it means that somebody quotes a command, or that a file holds one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Name = Literal["rate", "fix", "undo", "status", "help", "train", "rollback", "on", "off"]
Message = dict[str, Any]

ANSWER_PREFIX = "burnish: "
"""Every local answer begins with it, so that the exchange is known again in a history."""


@dataclass(frozen=True, slots=True)
class Command:
    """One ``/rl`` command."""

    name: Name
    text: str = ""
    """Comment of a rating, the wanted reply of ``fix``, argument of others, or what ``help`` did not understand."""
    reward: float | None = None
    """Of a rating, in [-1, 1]."""
    scale: str | None = None
    """binary | likert."""


TONES = "[\U0001f3fb-\U0001f3ff\ufe0f]"
"""Skin tones, and the selector that asks for a coloured glyph."""
GOOD = frozenset({"good", "👍", "+1", "yes", "up"})
BAD = frozenset({"bad", "👎", "-1", "\u22121", "no", "down"})
LIKERT = frozenset("12345")
PLAIN_COMMANDS: tuple[Name, ...] = ("undo", "status", "help", "train", "on", "off")

WORD = re.compile(rf"(?P<word>👍|👎|[+\-\u2212]?\w+){TONES}*[.!?,;:…]*(?:\s+(?P<tail>.*))?", re.DOTALL)
SEPARATOR = re.compile(r"\A[-–—:,;]\s+")

# Wrappers, each as the client writes it.
TIMESTAMP = re.compile(
    r"\A\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: [\w+\-:/]{1,32})?\] "
)
"""OpenClaw: "[Sat 2026-11-21 03:19 UTC] "."""
QUOTED = re.compile(r'\A"(/rl(?:[^"\\]|\\.)*)"\s*\Z', re.DOTALL)
"""opencode run puts an argument with spaces into quotes."""
CONTEXT_MESSAGES = (
    re.compile(r"\A<system-reminder>.*</system-reminder>\Z", re.DOTALL),
    re.compile(
        r"\A<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\n.*\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>\Z", re.DOTALL
    ),
    re.compile(
        r"\AOpenClaw runtime context for the immediately preceding user message\.\n"
        r"This context is runtime-generated, not user-authored\. Keep internal details private\.(?:\n.*)?\Z",
        re.DOTALL,
    ),
    # Codex
    re.compile(r"\A<environment_context>.*</environment_context>\Z", re.DOTALL),
    re.compile(r"\A<user_instructions>.*</user_instructions>\Z", re.DOTALL),
    re.compile(r"\A# AGENTS\.md instructions(?: for [^\n]+)?\n+<INSTRUCTIONS>.*</INSTRUCTIONS>\Z", re.DOTALL),
    re.compile(r"\A<turn_aborted>.*</turn_aborted>\Z", re.DOTALL),
)
"""User parts and messages that no human wrote."""

SYSTEM_ROLES = ("system", "developer")


def parse(text: str) -> Command | None:
    """Understand a whole message; None when it is no command, ``help`` when it is one that nobody knows."""
    text = text.strip()
    first_line, _, further_lines = text.partition("\n")
    if re.match(r"/rl(?:\s|\Z)", text) is None:
        return None
    rest = text[len("/rl") :].strip()
    if fix := re.fullmatch(r"fix(?:\s+(.*))?", rest, re.DOTALL):
        return Command("fix", (fix[1] or "").strip())
    if further_lines.strip() or "\r" in first_line.strip():
        return None
    return _one_line(rest)


def _one_line(rest: str) -> Command:
    match = WORD.fullmatch(rest)
    unknown = Command("help", rest)
    if match is None:
        return unknown
    word, tail = match["word"].lower(), (match["tail"] or "").strip()
    if word in GOOD | BAD | LIKERT:
        return _rating(word, SEPARATOR.sub("", tail))
    if word == "rollback" and re.fullmatch(r"(?:v?\d{1,9}|base)?", tail):
        return Command("rollback", tail)
    plain = next((name for name in PLAIN_COMMANDS if name == word), None)
    return Command(plain) if plain and not tail else unknown


def _rating(word: str, comment: str) -> Command:
    if word in LIKERT:
        return Command("rate", comment, (int(word) - 3) / 2, "likert")
    return Command("rate", comment, 1.0 if word in GOOD else -1.0, "binary")


def find_command(messages: Sequence[Message]) -> Command | None:
    """Return the command that is the whole of the last human turn, if it is one."""
    turn = _last_turn(messages)
    return _command_of([messages[index] for index in turn])


def without_command(messages: Sequence[Message]) -> list[Message]:
    """Return the history that a command speaks about: without it, and without earlier exchanges."""
    turn = set(_last_turn(messages))
    return cut_exchanges([message for index, message in enumerate(messages) if index not in turn])


def cut_exchanges(messages: list[Message]) -> list[Message]:
    """Remove earlier commands and our answers to them; the same object when there are none."""
    cut = exchanges(messages)
    return [message for index, message in enumerate(messages) if index not in cut] if cut else messages


def exchanges(messages: Sequence[Message]) -> set[int]:
    """Return where earlier commands and our answers to them are."""
    cut: set[int] = set()
    for index, message in enumerate(messages):
        if message.get("role") == "assistant" and _text(message).startswith(ANSWER_PREFIX):
            turn = _last_turn(messages[:index])
            if _command_of([messages[each] for each in turn]):
                cut |= {index, *turn}
    return cut


def _last_turn(messages: Sequence[Message]) -> range:
    """Return where the user messages at the end are; system messages after them belong to nobody."""
    end = len(messages)
    while end and messages[end - 1].get("role") in SYSTEM_ROLES:
        end -= 1
    start = end
    while start and messages[start - 1].get("role") == "user":
        start -= 1
    return range(start, end)


def _command_of(turn: Sequence[Message]) -> Command | None:
    """Return the command of a turn that says one thing only."""
    parts = [part for message in turn for part in _parts(message)]
    said = [part for part in parts if not (isinstance(part, str) and _is_context(part))]
    if len(said) != 1 or not isinstance(said[0], str):
        return None
    text = TIMESTAMP.sub("", said[0].strip())
    if quoted := QUOTED.match(text):
        text = quoted[1].replace('\\"', '"')
    return parse(text)


def _parts(message: Message) -> list[Any]:
    """Return texts as strings, anything else as it is."""
    content = message.get("content")
    if not isinstance(content, list):
        return [content]
    return [
        part["text"]
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        else (part, "not a text")
        for part in content
    ]


def _is_context(text: str) -> bool:
    return any(pattern.match(text.strip()) for pattern in CONTEXT_MESSAGES)


def _text(message: Message) -> str:
    return "".join(part for part in _parts(message) if isinstance(part, str))
