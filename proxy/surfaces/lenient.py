"""Parse JSON as upstreams really send it, with half surrogate pairs and NaN, into values that UTF-8 can hold."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST_INTEGER = 20
"""Characters of the longest integer that fits into 64 bits."""
TEXT_LIMIT = 64 * 1024
"""Characters of an error body that are kept; longer ones are web pages."""
QUOTED = 80
"""Characters shown of an unreadable part."""


def loads(text: str | bytes) -> Any:
    """Parse JSON, even if an escaped emoji was split between two events. Raises ValueError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            # Only UTF-8: json would also accept UTF-16.
            text = text if isinstance(text, str) else text.decode("utf-8-sig")
            return json.loads(text, parse_int=_integer)
        except RecursionError as error:
            raise ValueError("JSON nested too deeply") from error


def _integer(digits: str) -> int | float:
    """Parse an integer as orjson does: one beyond 64 bits becomes a float."""
    if len(digits) <= LONGEST_INTEGER:
        number = int(digits)
        if -(2**63) <= number < 2**64:
            return number
    return float(digits)


def loads_storable(text: str | bytes) -> Any:
    """Parse JSON into a value that can be stored as UTF-8 JSON. Raises ValueError."""
    try:
        return orjson.loads(text)  # orjson refuses lone surrogates
    except orjson.JSONDecodeError:
        return storable(loads(text))


def storable(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value that can be stored as UTF-8 JSON: halves of a surrogate pair are joined, lone ones replaced."""
    try:
        orjson.dumps(value)
    except TypeError:
        # Escaping to ASCII and parsing joins two consecutive halves.
        joined = json.loads(json.dumps(value))
        cleaned: dict[str, Any] = json.loads(
            LONE_SURROGATE.sub("\ufffd", json.dumps(joined, ensure_ascii=False))
        )
        return cleaned
    return value


def as_text(body: bytes) -> str | None:
    """Return the text of an error body; None if it is empty."""
    return body.decode("utf-8", "replace")[:TEXT_LIMIT] or None


def error_in(body: dict[str, Any]) -> str | None:
    """Return the error message in an upstream's body, if any."""
    error = body.get("error")
    if not error:
        if "choices" in body:
            return None
        error = body.get("detail")  # FastAPI's form, which some engines use
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error = error["message"]
    if not error:
        return None
    message = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    return as_text(message.encode("utf-8", "replace"))


class Damage:
    """Counts the unreadable parts of a stream of JSON. ``str``: a message, empty if there are none."""

    def __init__(self) -> None:
        self.garbled = False
        """Whether a part isn't UTF-8."""
        self._unread = 0
        self._first = ""

    def unread(self, part: str) -> None:
        """Count a part that isn't JSON."""
        self._unread += 1
        self._first = self._first or part

    def __str__(self) -> str:
        if self._unread:
            return f"{self._unread} of the answer's parts cannot be read, the first: {self._first[:QUOTED]!r}"
        return "the answer is not UTF-8" if self.garbled else ""


def dumps(value: Any) -> str:
    """Dump JSON into a text that becomes part of a value. Lone surrogates stay; ``storable`` cleans them later."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "null"  # nested a thousand times; no real call is
