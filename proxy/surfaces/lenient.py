"""JSON as upstreams really send it: half surrogate pairs and NaN included, but stored as clean UTF-8."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST_INTEGER = 20
"""Characters of those that 64 bits hold."""
TEXT_LIMIT = 64 * 1024
"""Characters of an error's body that are kept; longer ones are web pages."""
QUOTED = 80
"""Characters of a part that cannot be read."""


def loads(text: str | bytes) -> Any:
    """Parse JSON, also when an escaped emoji was split between two events. Raises ValueError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            # Bytes are UTF-8 and nothing else: json would take UTF-16 as well.
            text = text if isinstance(text, str) else text.decode("utf-8-sig")
            return json.loads(text, parse_int=_integer)
        except RecursionError as error:
            raise ValueError("JSON nested too deeply") from error


def _integer(digits: str) -> int | float:
    """Return an integer as orjson reads it: one that 64 bits do not hold as a float."""
    if len(digits) <= LONGEST_INTEGER:
        number = int(digits)
        if -(2**63) <= number < 2**64:
            return number
    return float(digits)


def loads_storable(text: str | bytes) -> Any:
    """Parse JSON into a value that UTF-8 JSON can hold. Raises ValueError."""
    try:
        return orjson.loads(text)  # it takes no lone surrogates
    except orjson.JSONDecodeError:
        return storable(loads(text))


def storable(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value that UTF-8 JSON can hold: halves of a surrogate pair joined, lone ones replaced."""
    try:
        orjson.dumps(value)
    except TypeError:
        # Escaped to ASCII and read again, two halves that follow each other become one character.
        joined = json.loads(json.dumps(value))
        cleaned: dict[str, Any] = json.loads(
            LONE_SURROGATE.sub("\ufffd", json.dumps(joined, ensure_ascii=False))
        )
        return cleaned
    return value


def as_text(body: bytes) -> str | None:
    """Return what a body says to people who look for the error in it; None when it is empty."""
    return body.decode("utf-8", "replace")[:TEXT_LIMIT] or None


class Damage:
    """What of a stream of JSON cannot be read."""

    def __init__(self) -> None:
        self.garbled = False
        """Whether some of it is not UTF-8."""
        self._unread = 0
        self._first = ""

    def unread(self, part: str) -> None:
        """Take note of a part that is no JSON."""
        self._unread += 1
        self._first = self._first or part

    def __str__(self) -> str:
        if self._unread:
            return f"{self._unread} of the answer's parts cannot be read, the first: {self._first[:QUOTED]!r}"
        return "the answer is not UTF-8" if self.garbled else ""


def dumps(value: Any) -> str:
    """Write a value into a text as JSON, surrogates as they came: ``storable`` cleans what the text becomes part of."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "null"  # nested a thousand times: nobody calls a tool with it
