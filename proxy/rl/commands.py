"""Finds a ``/rl`` command in the last human turn, and earlier commands in the history. Pure.

A command must be the whole last human turn. Text that clients wrap around it is removed. With any other text around
it, the command is only a quotation, or part of a file.

Wrappers of an exact pattern are known (``messages``). Any other block ``<tag>…</tag>`` before a command may hold a
document, which may close the tag itself. So it ends at the last closing tag of its name, and what remains must be one
line. So must a command beside another part, or inside a wrapper around the person's own words.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from burnish.proxy.access.access import Identity
from burnish.proxy.messages import SYSTEM_ROLES, is_context, of_a_person, unwrapped
from burnish.proxy.rl.grammar import BLANK, Command, parse
from burnish.proxy.rl.own_words import PREFIX, is_answer

Message = dict[str, Any]


class CommandRequest(NamedTuple):
    """A command, and who typed it where."""

    command: Command
    messages: list[Message] | None
    """The whole request with the command; None: the caller's last answer is meant."""
    caller: str
    session: str | None
    identity: Identity
    previous: str | None = None
    """The response that the request continues, if the upstream keeps the history."""
    remote_context: str | None = None
    """As of ``ChatRequest``."""


CommandAnswer = Callable[[CommandRequest], Awaitable[str]]
"""Carries out a command and returns the text that answers it."""

BEGINNINGS = ("/", "／", '"', "<", "[", "Conversation info")
"""How a command begins, or what stands before one: most texts are told from commands by that alone."""
QUOTED = re.compile(r'\A"(/rl(?:[^"\\]|\\.)*)"\s*\Z', re.DOTALL | re.IGNORECASE)
"""``opencode run`` puts an argument with spaces into quotes."""
BLOCK = re.compile(r"<(?P<name>[A-Za-z][\w.:-]{0,63})(?:\s[^<>]{0,1000})?>")
"""The tag that opens a block, such as Copilot CLI's ``<current_datetime>``."""
MOST_BLOCKS = 8
OWN_WORDS = "user_query"
"""Cursor's tag around the person's own words."""
AIDER_NOTES = re.compile(
    r"I updated the files\.|I committed the changes with git hash |I made those changes to the files\.|"
    r"I ran this command:"
)
"""User messages that aider adds after an answer. aider also adds the reply "Ok." to them."""
REMINDER_CHARACTERS = 40
"""Shorter texts don't count as the end of aider's system prompt."""
MOST_PARAGRAPHS = 100
"""Of a command, behind which aider's reminder is looked for."""


FIRST = frozenset(BLANK) | {beginning[0] for beginning in BEGINNINGS}
"""How the text of a command begins, or what is stripped from it."""


def may_be_command(messages: Sequence[Message]) -> bool:
    """Tell most last turns, which are one text, from commands: by its first character."""
    last = messages[-1] if messages else {}
    content = last.get("content")
    if not content or not isinstance(content, str) or last.get("role") != "user":
        return bool(messages)
    if len(messages) > 1 and messages[-2].get("role") == "user":
        return True
    return content[0] in FIRST


def find_command(messages: Sequence[Message]) -> Command | None:
    """Return the command in the last human turn, if the turn is one."""
    turn = [messages[index] for index in _last_turn(messages)]
    if _command_of(turn) is None:
        return None
    system = next((_text(message) for message in messages if message.get("role") in SYSTEM_ROLES), "")
    return _command_of([_without_reminder(message, system) for message in turn])


def command_at(messages: Sequence[Message]) -> set[int]:
    """Return the positions of the last human turn, if it is a command."""
    return set(_last_turn(messages)) if find_command(messages) else set()


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
    """Return the positions of earlier commands with their answers, and of answers whose command was dropped."""
    cut: set[int] = set()
    for index, message in enumerate(messages):
        if _is_ours(message):
            turn = _last_turn(messages, index)
            if _command_of([messages[position] for position in turn]):
                cut |= {index, *turn}
            elif is_answer(_text(message)) and not message.get("tool_calls"):
                cut.add(index)
    return cut


def unanswered(messages: Sequence[Message]) -> list[int]:
    """Return the positions of earlier messages that are commands, without an answer of burnish's own behind them.

    A client may have dropped the answer. But perhaps nobody typed the command: only the log knows.
    """
    positions: list[int] = []
    following: Message | None = None
    for index in reversed(range(len(messages))):
        message = messages[index]
        role = message.get("role")
        if role in SYSTEM_ROLES or (role == "user" and not of_a_person(message)):
            continue
        if role == "user" and following and not _is_ours(following) and _command_of([message]):
            positions.append(index)
        following = message
    return positions[::-1]


def _is_ours(message: Message) -> bool:
    if message.get("role") != "assistant":
        return False
    content = message.get("content")
    return (content if isinstance(content, str) else _text(message)).startswith(PREFIX)


def _last_turn(messages: Sequence[Message], end: int | None = None) -> range:
    """Return the positions of the last user messages before ``end``; ignores system messages after them."""
    end = len(messages) if end is None else end
    while end and messages[end - 1].get("role") in SYSTEM_ROLES:
        end -= 1
    start = end
    while start and messages[start - 1].get("role") == "user":
        start -= 1
    return range(start, end)


def _command_of(turn: Sequence[Message]) -> Command | None:
    """Return the command of a turn with a single text."""
    texts: list[str] = []
    strictly = False
    count = 0
    for message in turn:
        parts = _parts(message)
        count += len(parts)
        for part in parts:
            if not isinstance(part, str):
                return None
            if is_context(part):
                continue
            if not part.strip(BLANK) or (len(parts) > 1 and not _behind_blocks(part)):
                strictly = True
            else:
                texts.append(part)
    return _command_in(texts[0], alone=count == 1, strictly=strictly) if len(texts) == 1 else None


def _command_in(text: str, *, alone: bool, strictly: bool) -> Command | None:
    """Return the command that a text is. ``alone``: without another part; ``strictly``: it must be one line."""
    if not text.lstrip(BLANK).startswith(BEGINNINGS):
        return None
    words = unwrapped(text)
    untouched = alone and words == text.strip()
    if (inside := _inside_own_words(_behind_blocks(words))) != words:
        words, untouched, strictly = inside, False, True
        if "</" in words:
            return None
    if quoted := QUOTED.match(words):
        words, untouched = quoted[1].replace('\\"', '"'), False
    command = parse(words)
    if command is None or untouched or len(words.strip(BLANK).splitlines()) == 1:
        return command
    return command if command.name == "fix" and not strictly else None


def _behind_blocks(text: str) -> str:
    """Return what stands behind the blocks that a text begins with."""
    for _ in range(MOST_BLOCKS):
        opening = BLOCK.match(text)
        if opening is None or opening["name"] == OWN_WORDS:
            break
        _, closed, remainder = text[opening.end() :].rpartition(f"</{opening['name']}>")
        if not closed:
            break
        text = remainder.strip(BLANK)
    return text


def _inside_own_words(text: str) -> str:
    """Return what a wrapper of the person's words holds, if the text is wholly one; else the text."""
    opening, closing = f"<{OWN_WORDS}>", f"</{OWN_WORDS}>"
    if not (text.startswith(opening) and text.endswith(closing)):
        return text
    inside = text.removeprefix(opening).removesuffix(closing)
    return text if OWN_WORDS in inside else inside


def _without_reminder(message: Message, system: str) -> Message:
    """Remove the end of the system prompt, which aider repeats below a message."""
    content = message.get("content")
    if not isinstance(content, str):
        return message
    system, text, end = system.rstrip(), content.rstrip(), -1
    for _ in range(MOST_PARAGRAPHS):
        end = text.find("\n\n", end + 1)
        if end < 0 or len(below := text[end + 2 :]) < REMINDER_CHARACTERS:
            break
        if system.endswith(below):
            return {**message, "content": text[:end]}
    return message


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
