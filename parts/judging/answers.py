"""Reads what a judge wrote. Small models wrap, repeat and explain, so only a clear statement counts. Pure."""

from __future__ import annotations

import re
from typing import Literal

from burnish.parts.judging.prompts import NOTHING

Pick = Literal["A", "B", "equal"]

_WORDS = re.VERBOSE | re.IGNORECASE
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
"""Some engines leave a model's reasoning in its answer; one that was cut off has no end."""
_CANNOT = r"(?:can['’]?t|cannot|unable|not\ able)\b"
_REFUSAL = re.compile(
    rf"""(?:i['’]?m|i\ am|we['’]?re|we\ are)?\s*(?:very\ |so\ )?(?:sorry|afraid)\b[^.!\n]{{0,80}}\b{_CANNOT}
    | as\ an\ ai\b[^.!\n]{{0,80}}\b{_CANNOT}
    | (?:i|we)\ (?:can['’]?t|cannot|won['’]?t|will\ not|(?:am|are)\ (?:unable|not\ able)\ to
        |(?:must|have\ to)\ decline)\b
        [^.!\n]{{0,20}}\b(?:help|assist|answer|comply|provide|judge|evaluate|rewrite|continue|compare)""",
    _WORDS,
)
_NOTHING = re.compile(
    rf"""{NOTHING}\b
    | (?:there\ is\ )?(?:nothing|none)\b\s*[.!]?\s*\Z
    | nothing\ (?:in\ (?:the|this)\ reply\ )?(?:goes|is|violates|breaks)\b
    | no\ (?:violations?|problems?|issues?)\b""",
    _WORDS,
)
_AROUND = " \t\r\n*_`#>\"'“”‘’([{<-"
"""What models put around a word or a text."""
_OPENING = re.compile(
    r"""(?:(?:sure|certainly|of\ course|okay|ok)\b[^\n]{0,40}[!:,.]\s*)?
    (?:(?:here['’]?s|here\ is|this\ is)\b[^\n]{0,60}:\s*\n+
    | (?:\*\*)?(?:the\ |a\ |my\ )?(?:better|revised|improved|new|rewritten)\ (?:reply|response|answer|version)(?:\*\*)?
        \s*:(?:\*\*)?\s*)""",
    _WORDS,
)
_TAGS = re.compile(r"</?(?:reply|response|answer)(?: [AB])?(?: [0-9a-f]{8})?>", re.IGNORECASE)

_REPLY = r"(?:reply|response|answer|option)"
_ALONE = re.compile(
    rf"""(?:(?:the\ )?(?:final\ |best\ |better\ |correct\ |my\ )?(?:{_REPLY}|choice|verdict|preference|one)
        \s*(?:is|:|=)+\s*)?
    [*_`"'“(\[]*(?:{_REPLY}\ )?(?P<letter>[AB])[*_`"'”)\]]*\s*(?:[.,:;!\n–—-]|\Z)""",
    _WORDS,
)
"""A letter at the beginning, and then a pause: "A better reply" names none."""
_AND_ANOTHER = re.compile(r"\s*(?:and|or|/)?\s*[AB]\W*")
_IS_BETTER = re.compile(
    r"""\b(?P<letter>[AB])[*"'”)]*\s+
    (?:is\ (?:the\ )?(?:better|best|clearly|more|preferred|preferable)
        |follows|wins|because|adheres|does\ (?:a\ )?better)""",
    re.VERBOSE,
)
_PREFERS = re.compile(
    rf"""\b(?:i\ (?:would\ )?(?:prefer|choose|pick|select)|better\ (?:reply|one)\ is)\s+(?:{_REPLY}\ )?
    (?P<letter>[AB])\b""",
    _WORDS,
)
_EQUAL = re.compile(
    r"(?:neither|both|equal(?:ly)?|(?:a )?tie|the same|they are (?:equal|the same|both))\b", re.IGNORECASE
)


def said(text: str) -> str:
    """Return an answer without the model's reasoning."""
    return _THOUGHT.sub("", text).strip()


def refuses(text: str) -> bool:
    return _REFUSAL.match(text.lstrip(_AROUND)) is not None


def finds_nothing(critique: str) -> bool:
    return _NOTHING.match(critique.lstrip(_AROUND)) is not None


def revision(text: str) -> str:
    """Return the reply that a judge wrote, without what it said around it."""
    reply = _TAGS.sub("", _OPENING.sub("", text, count=1)).strip()
    quoted = len(reply) > 1 and (reply[0], reply[-1]) in (('"', '"'), ("“", "”"))
    return reply[1:-1].strip() if quoted and not set('"“”') & set(reply[1:-1]) else reply


def pick(text: str) -> Pick | None:
    """Return which of two replies a judge prefers; None if that isn't clear."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    if match := _ALONE.match(lines[0]):
        # "A, B" prefers neither.
        return None if _AND_ANOTHER.fullmatch(lines[0], match.end()) else _letter(match)
    if _EQUAL.match(lines[0].lstrip(_AROUND)):
        return "equal"
    letters = {_letter(match) for pattern in (_IS_BETTER, _PREFERS) for match in pattern.finditer(text)}
    if not letters and (match := _ALONE.fullmatch(lines[-1])):
        letters = {_letter(match)}
    return letters.pop() if len(letters) == 1 else None


def _letter(match: re.Match[str]) -> Pick:
    return "A" if match["letter"].upper() == "A" else "B"
