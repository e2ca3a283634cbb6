"""The grammar of ``/rl``, pure: is the last human turn a command, and which; and which turns of a history were one.

A command is honoured only as the whole of the last human turn. What clients wrap around it is taken off by
exact pattern; anything else around it means that somebody quotes a command, or that a file holds one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from burnish.proxy.log.people import is_context, unwrapped

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

QUOTED = re.compile(r'\A"(/rl(?:[^"\\]|\\.)*)"\s*\Z', re.DOTALL)
"""opencode run puts an argument with spaces into quotes."""
AIDER_NOTES = re.compile(
    r"I updated the files\.|I committed the changes with git hash |I made those changes to the files\.|"
    r"I ran this command:"
)
"""What aider lets the user say after an answer; "Ok." is the answer to it, of nobody."""
SYSTEM_ROLES = ("system", "developer")
REMINDER_CHARACTERS = 40
"""Of the shortest text that is taken for the end of aider's system prompt."""


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
    system = next((_text(message) for message in messages if message.get("role") in SYSTEM_ROLES), "")
    return _command_of([_without_reminder(messages[index], system) for index in _last_turn(messages)])


def without_command(messages: Sequence[Message]) -> list[Message]:
    """Return the history that a command speaks about: without it, and without earlier exchanges."""
    turn = set(_last_turn(messages))
    history = cut_exchanges([message for index, message in enumerate(messages) if index not in turn])
    while len(history) > 1 and _text(history[-1]) == "Ok." and AIDER_NOTES.match(_text(history[-2])):
        history = history[:-2]
    return history


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
    said = [part for part in parts if not (isinstance(part, str) and is_context(part))]
    if len(said) != 1 or not isinstance(said[0], str):
        return None
    text = unwrapped(said[0])
    if quoted := QUOTED.match(text):
        text = quoted[1].replace('\\"', '"')
    return parse(text)


def _without_reminder(message: Message, system: str) -> Message:
    """Return a message less what aider puts below it: the end of its system prompt, once more."""
    content = message.get("content")
    if not isinstance(content, str):
        return message
    said, _, below = content.partition("\n\n")
    reminds = len(below) >= REMINDER_CHARACTERS and system.rstrip().endswith(below.rstrip())
    return {**message, "content": said} if reminds else message


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


def _text(message: Message) -> str:
    return "".join(part for part in _parts(message) if isinstance(part, str))
