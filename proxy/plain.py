"""Characters that steer a terminal or disguise a text: control characters and bidirectional overrides."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
_IN_TEXT = re.compile(f"[{_STEERING}]")
_IN_LINE = re.compile(f"[{_STEERING}\t\n]")


def plain(text: str) -> str:
    """Remove them; line ends and tabs stay."""
    return _IN_TEXT.sub("", text)


def escaped(text: str) -> str:
    r"""Write them as \u sequences, as JSON allows."""
    return _IN_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _one_line(text: str) -> str:
    if match := _IN_LINE.search(text):
        raise ValueError(f"must be one line without control characters, but contains {match[0]!a}: remove it")
    return text


Line = Annotated[str, AfterValidator(_one_line)]
"""A name or a reason that people read in lists."""
