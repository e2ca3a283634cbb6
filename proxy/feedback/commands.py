"""The grammar of ``/rl``: find a command in the last human turn, and earlier commands in the history.

A command must be the whole last human turn. Text that clients wrap around it is removed by exact patterns. With any
other text around it, the command is only a quotation, or part of a file.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from burnish.proxy.access import Identity
from burnish.proxy.log.people import is_context, unwrapped

Name = Literal["rate", "fix", "undo", "status", "help", "train", "rollback", "on", "off"]
Message = dict[str, Any]

ANSWER_PREFIX = "burnish: "
"""The start of every local answer, by which the exchange is recognised in a history."""


@dataclass(frozen=True, slots=True)
class Command:
    """One ``/rl`` command."""

    name: Name
    text: str = ""
    """Comment of a rating, reply for ``fix``, argument of another command, or the unknown text for ``help``."""
    reward: float | None = None
    """Of a rating, in [-1, 1]."""
    scale: str | None = None
    """binary | likert."""


class Answer(Protocol):
    """Carries out a ``/rl`` command and returns the text that answers it."""

    def __call__(
        self,
        command: Command,
        messages: list[dict[str, Any]] | None,
        *,
        caller: str,
        session: str | None,
        identity: Identity,
        previous: str | None = None,
    ) -> Awaitable[str]:
        """``messages`` is the whole request with the command; None: the caller's last answer is meant.

        ``previous``: the response that the request continues, if the upstream keeps the history.
        """
        ...


TONES = "[\U0001f3fb-\U0001f3ff\ufe0f]"
"""Skin tones, and the selector for a coloured glyph."""
GOOD = frozenset({"good", "👍", "+1", "yes", "up"})
BAD = frozenset({"bad", "👎", "-1", "\u22121", "no", "down"})
LIKERT = frozenset("12345")
PLAIN_COMMANDS: tuple[Name, ...] = ("undo", "status", "help", "train", "on", "off")

WORD = re.compile(rf"(?P<word>👍|👎|[+\-\u2212]?\w+){TONES}*[.!?,;:…]*(?:\s+(?P<tail>.*))?", re.DOTALL)
SEPARATOR = re.compile(r"\A[-–—:,;]\s+")

QUOTED = re.compile(r'\A"(/rl(?:[^"\\]|\\.)*)"\s*\Z', re.DOTALL)
"""``opencode run`` puts an argument with spaces into quotes."""
AIDER_NOTES = re.compile(
    r"I updated the files\.|I committed the changes with git hash |I made those changes to the files\.|"
    r"I ran this command:"
)
"""User messages that aider adds after an answer. aider also adds the reply "Ok." to them."""
SYSTEM_ROLES = ("system", "developer")
REMINDER_CHARACTERS = 40
"""Shorter texts don't count as the end of aider's system prompt."""


def parse(text: str) -> Command | None:
    """Parse a whole message; None if it isn't a command, ``help`` if the command is unknown."""
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
    if word == "reset" and not tail:
        return Command("rollback", "base")
    plain = next((name for name in PLAIN_COMMANDS if name == word), None)
    return Command(plain) if plain and not tail else unknown


def _rating(word: str, comment: str) -> Command:
    if word in LIKERT:
        return Command("rate", comment, (int(word) - 3) / 2, "likert")
    return Command("rate", comment, 1.0 if word in GOOD else -1.0, "binary")


def find_command(messages: Sequence[Message]) -> Command | None:
    """Return the command in the last human turn, if the turn is one."""
    system = next((_text(message) for message in messages if message.get("role") in SYSTEM_ROLES), "")
    return _command_of([_without_reminder(messages[index], system) for index in _last_turn(messages)])


def without_command(messages: Sequence[Message]) -> list[Message]:
    """Return the history before a command, without earlier commands and their answers."""
    turn = set(_last_turn(messages))
    history = cut_exchanges([message for index, message in enumerate(messages) if index not in turn])
    while len(history) > 1 and _text(history[-1]) == "Ok." and AIDER_NOTES.match(_text(history[-2])):
        history = history[:-2]
    return history


def cut_exchanges(messages: list[Message]) -> list[Message]:
    """Remove earlier commands and their answers; returns the same object if there are none."""
    cut = exchanges(messages)
    return [message for index, message in enumerate(messages) if index not in cut] if cut else messages


def exchanges(messages: Sequence[Message]) -> set[int]:
    """Return the positions of earlier commands and their answers."""
    cut: set[int] = set()
    for index, message in enumerate(messages):
        if message.get("role") == "assistant" and _text(message).startswith(ANSWER_PREFIX):
            turn = _last_turn(messages[:index])
            if _command_of([messages[each] for each in turn]):
                cut |= {index, *turn}
    return cut


def _last_turn(messages: Sequence[Message]) -> range:
    """Return the positions of the last user messages; ignores system messages after them."""
    end = len(messages)
    while end and messages[end - 1].get("role") in SYSTEM_ROLES:
        end -= 1
    start = end
    while start and messages[start - 1].get("role") == "user":
        start -= 1
    return range(start, end)


def _command_of(turn: Sequence[Message]) -> Command | None:
    """Return the command of a turn with a single text."""
    parts = [part for message in turn for part in _parts(message)]
    texts = [part for part in parts if not (isinstance(part, str) and is_context(part))]
    if len(texts) != 1 or not isinstance(texts[0], str):
        return None
    text = unwrapped(texts[0])
    if quoted := QUOTED.match(text):
        text = quoted[1].replace('\\"', '"')
    return parse(text)


def _without_reminder(message: Message, system: str) -> Message:
    """Remove the end of the system prompt, which aider repeats below a message."""
    content = message.get("content")
    if not isinstance(content, str):
        return message
    text, _, below = content.partition("\n\n")
    reminds = len(below) >= REMINDER_CHARACTERS and system.rstrip().endswith(below.rstrip())
    return {**message, "content": text} if reminds else message


def _parts(message: Message) -> list[Any]:
    """Return texts as strings, and other parts unchanged."""
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
