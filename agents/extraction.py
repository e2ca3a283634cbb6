"""From a reply to an action: JSON first, then words. Pure.

Small models wrap an action into fences, prose and JSON of their own making. What is understood, in this order:

1. JSON anywhere in the reply, nested too, with a member such as ``action``; the last one that names an action.
2. A labelled word: "Action: hit", "I choose hit". The last one.
3. The whole reply.
4. The only action that the prose names. Negated ones ("don't hit") don't count. Two different ones name none.

Thoughts don't count, not even those that were cut off, or whose opening tag stands in the prompt.

An action may be named by its name, a synonym, or its value: in figures or in words ("one"), but not in prose, which is
full of numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

Action = TypeVar("Action")

MEMBERS = ("action", "move", "choice", "command", "answer", "decision")
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# What may stand between a label and the action: "Action: hit", "**Action** -> `hit`", "my choice is to hit".
_GAP = r"[\s\"'`*_:=>\-–]*(?:is\b|are\b|to\b|the\b|[\s\"'`*_:=>\-–])*"
_LABEL = rf"\b(?:{'|'.join(MEMBERS)}|choose|pick|play|select)\b{_GAP}"
_NEGATED = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\binstead of|\brather than|\bthan|\bwithout)\s+(?:to\s+|a\s+)?$"
)
_THOUGHTS = r"(?:think|thinking|thought|reasoning)"
_THOUGHT = re.compile(rf"<{_THOUGHTS}>.*?</{_THOUGHTS}>|\[THINK\].*?\[/THINK\]", re.DOTALL | re.IGNORECASE)
_UNOPENED = re.compile(rf".*(?:</{_THOUGHTS}>|\[/THINK\])", re.DOTALL | re.IGNORECASE)
_UNCLOSED = re.compile(rf"(?:<{_THOUGHTS}>|\[THINK\]).*", re.DOTALL | re.IGNORECASE)
_PUNCTUATION = " \t\r\n\"'`*_.,;:!?()[]{}<>"
_SENTENCE_END = re.compile(r"[.;!?\n]")


def find_action(
    reply: str,
    actions: Mapping[str, Action],
    synonyms: Mapping[str, Sequence[str]] | None = None,
) -> Action | None:
    """Return the action that a reply names, or None if it names none or several.

    ``actions``: the value of each action by its name. ``synonyms``: further names by the name of the action.
    """
    for thoughts in (_THOUGHT, _UNOPENED, _UNCLOSED):
        reply = thoughts.sub("", reply)
    words, numbered = _spellings(actions, synonyms or {})
    everything = words | numbered
    name = _in_json(reply, everything)
    text = _plain(reply)
    name = (
        name or _labelled(text, everything) or everything.get(text.strip(_PUNCTUATION)) or _only(text, words)
    )
    return None if name is None else actions[name]


def _spellings(
    actions: Mapping[str, Any], synonyms: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the actions' names by spelling: words, and figures."""
    if unknown := synonyms.keys() - actions.keys():
        raise ValueError(f"synonyms are given for {sorted(unknown)}, and the actions are {sorted(actions)}")
    words: dict[str, str] = {}
    numbered: dict[str, str] = {}
    for name, action in actions.items():
        for spelling in (name, *synonyms.get(name, ())):
            spellings = numbered if spelling.strip().isdecimal() else words
            spellings[_plain(spelling).strip()] = name
        # True and False are actions of some environments, but no figures.
        for number in {str(action)} if isinstance(action, int) and not isinstance(action, bool) else set():
            numbered.setdefault(number, name)
    for number, name in list(numbered.items()):
        if number.isdecimal() and int(number) < len(NUMBERS):
            numbered.setdefault(NUMBERS[int(number)], name)
    return words, numbered


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _in_json(reply: str, spellings: Mapping[str, str]) -> str | None:
    name = None
    for content in json_in(reply):
        for candidate in _members(content):
            text = (
                _plain(str(candidate)).strip(_PUNCTUATION) if isinstance(candidate, str | int | float) else ""
            )
            name = spellings.get(text.removesuffix(".0"), name)
    return name


def json_in(text: str) -> Iterator[Any]:
    """Yield each JSON object in a text, outermost ones only."""
    decoder, place = json.JSONDecoder(), text.find("{")
    while place >= 0:
        try:
            content, end = decoder.raw_decode(text, place)
            yield content
        except (ValueError, RecursionError):
            end = place + 1
        place = text.find("{", end)


def _members(content: Any) -> Iterator[Any]:
    """Yield what may be an action, the likeliest last: a nested member counts less than an outer one."""
    if isinstance(content, list):
        for member in content:
            yield from _members(member)
    elif isinstance(content, dict):
        for member in content.values():
            yield from _members(member)
        lower = {str(name).casefold(): member for name, member in content.items()}
        yield from (lower[name] for name in reversed(MEMBERS) if name in lower)


def _labelled(text: str, spellings: Mapping[str, str]) -> str | None:
    labels = re.findall(_LABEL + _any_of(spellings), text)
    return spellings[labels[-1]] if labels else None


def _only(text: str, spellings: Mapping[str, str]) -> str | None:
    """Return the only action that is named and not negated."""
    names = {
        spellings[match[1]]
        for match in re.finditer(_any_of(spellings), text)
        if not _NEGATED.search(_SENTENCE_END.split(text[: match.start()])[-1])
    }
    return names.pop() if len(names) == 1 else None


def _any_of(spellings: Mapping[str, str]) -> str:
    """Return a pattern for whole words, the longest spelling first: "go north" before "go"."""
    ordered = sorted(spellings, key=len, reverse=True)
    return rf"(?<![\w-])({'|'.join(map(re.escape, ordered)) or '(?!)'})(?![\w-])"
