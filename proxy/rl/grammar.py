"""The grammar of ``/rl``: what a typed text commands. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from burnish.proxy.records import LIKERT

Name = Literal["rate", "fix", "undo", "status", "help", "train", "promote", "rollback", "reset", "on", "off"]


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
    remainder: str = ""
    """What stands below a good rating, behind a blank line: likelier the next question than a comment."""


INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Zero-width characters, which come along when a text is copied. A byte order mark is one of them."""
BLANK = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + INVISIBLE
SPACE = rf"[\s{INVISIBLE}]"
TONES = "[\U0001f3fb-\U0001f3ff\ufe0f]"
"""Skin tones, and the selector for a coloured glyph."""
QUOTES = "\"'“”„«»「」『』"
CJK = "。！？，、；：．｡､"
"""Punctuation behind which no space is needed."""
FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F) if chr(code) not in CJK}
"""Full-width letters, digits and signs → those of ASCII."""

GOOD = frozenset({"good", "👍", "+1", "yes", "up"})
BAD = frozenset({"bad", "👎", "-1", "\u22121", "no", "down"})
PLAIN_COMMANDS: tuple[Name, ...] = ("undo", "status", "help", "train", "on", "off")

START = re.compile(rf"/rl(?:@[\w.-]{{1,64}})?(?:{SPACE}+|\Z|(?=[👍👎]))", re.IGNORECASE)
"""Telegram adds the bot's name in groups: ``/rl@bot``."""
FIX = re.compile(rf"fix(?:{SPACE}+(?P<reply>.*))?", re.DOTALL | re.IGNORECASE)
THUMBS = rf"(?:👍{TONES}{{0,2}}){{1,9}} | (?:👎{TONES}{{0,2}}){{1,9}}"
WORD = re.compile(
    rf"""
    [{QUOTES}]{{0,3}}
    (?P<word> {THUMBS} | [1-5]/5 | [+\-\u2212]?\w{{1,32}} )
    [.!?,;:…{QUOTES}{CJK}]{{0,9}}
    (?: (?:{SPACE}+|(?<=[{CJK}])) (?P<tail>.*) )?
    """,
    re.DOTALL | re.VERBOSE,
)
"""Counts are limited, because a text may be long."""
SEPARATOR = re.compile(r"\A[-–—:,;]\s+")
BLANK_LINE = re.compile(rf"\n(?:(?!\n){SPACE})*\n")


def parse(text: str) -> Command | None:
    """Parse a whole message; None if it isn't a command, ``help`` if the command is unknown."""
    text = text.strip(BLANK)
    if not text.startswith(("/", "／")):
        return None
    # As long as the text, so that a comment is found in both.
    narrow = text.translate(FULL_WIDTH)
    start = START.match(narrow)
    if start is None:
        return None
    words, narrow = text[start.end() :], narrow[start.end() :]
    if fix := FIX.fullmatch(narrow):
        return Command("fix", words[fix.start("reply") :].strip() if fix["reply"] else "")
    match = WORD.fullmatch(narrow)
    if match is None:
        return Command("help", words)
    tail = words[match.start("tail") :].strip(BLANK) if match["tail"] else ""
    word = match["word"].lower()
    word = word[0] if word[0] in "👍👎" else word.removesuffix("/5")
    if word in GOOD | BAD or word in LIKERT:
        return _rating(word, tail, BLANK_LINE.search(words, match.end("word")))
    return _command(word, tail) or Command("help", words)


def _command(word: str, tail: str) -> Command | None:
    if word == "promote" and re.fullmatch(r"(?:v?\d{1,9})?", tail):
        return Command("promote", tail)
    if word == "rollback" and re.fullmatch(r"(?:v?\d{1,9}|base)?", tail):
        return Command("rollback", tail)
    if word == "reset" and tail.lower() in ("", "yes"):
        return Command("reset", tail.lower())
    plain = next((name for name in PLAIN_COMMANDS if name == word), None)
    return Command(plain) if plain and not tail else None


def _rating(word: str, tail: str, blank_line: re.Match[str] | None) -> Command:
    reward, scale = (
        ((int(word) - 3) / 2, "likert") if word in LIKERT else (1.0 if word in GOOD else -1.0, "binary")
    )
    remainder = blank_line.string[blank_line.end() :].strip(BLANK) if blank_line and reward > 0 else ""
    comment = tail[: len(tail) - len(remainder)].strip(BLANK)
    return Command("rate", SEPARATOR.sub("", comment), reward, scale, remainder)
