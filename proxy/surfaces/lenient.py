"""Decode bodies as upstreams really send them: content encodings, and JSON with half surrogate pairs and NaN.

JSON becomes values that UTF-8 can hold. A truncated body is decoded as far as it goes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from typing import Any

import orjson

Json = dict[str, Any]
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
            return json.loads(text, parse_int=integer)
        except RecursionError as error:
            raise ValueError("JSON nested too deeply") from error


def integer(digits: str) -> int | float:
    """Parse an integer as orjson does: one beyond 64 bits becomes a float."""
    if len(digits) <= LONGEST_INTEGER:
        number = int(digits)
        if -(2**63) <= number < 2**64:
            return number
    return float(digits)


def object_in(text: str | bytes) -> Json | None:
    """Parse a JSON object; None if the text is anything else."""
    try:
        parsed = loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def objects(content: Any) -> list[Json]:
    """Return the objects in a list; none if it isn't a list."""
    if not isinstance(content, list):
        return []
    return [candidate for candidate in content if isinstance(candidate, dict)]


def loads_storable(text: str | bytes) -> Any:
    """Parse JSON into a value that can be stored as UTF-8 JSON. Raises ValueError."""
    try:
        return orjson.loads(text)  # orjson refuses lone surrogates
    except orjson.JSONDecodeError:
        return storable(loads(text))


def storable(content: Json) -> Json:
    """Return a value that can be stored as UTF-8 JSON: halves of a surrogate pair are joined, lone ones replaced."""
    try:
        orjson.dumps(content)
    except TypeError:
        # Escaping to ASCII and parsing joins two consecutive halves.
        joined = json.loads(json.dumps(content))
        cleaned: Json = json.loads(LONE_SURROGATE.sub("\ufffd", json.dumps(joined, ensure_ascii=False)))
        return cleaned
    return content


def as_text(body: bytes) -> str | None:
    """Return the text of an error body; None if it is empty."""
    return body.decode("utf-8", "replace")[:TEXT_LIMIT] or None


def error_in(body: Json) -> str | None:
    """Return the error message in an upstream's body, if any."""
    error = body.get("error")
    if not error:
        if "choices" in body:
            return None
        error = body.get("detail")  # FastAPI's form, which some engines use
        if body.get("object") == "error":  # vLLM's former one
            error = body.get("message")
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
        self._unread += 1
        self._first = self._first or part

    def __str__(self) -> str:
        if self._unread:
            return f"{self._unread} of the answer's parts cannot be read, the first: {self._first[:QUOTED]!r}"
        return "the answer is not UTF-8" if self.garbled else ""


def dumps(content: Any) -> str:
    """Dump JSON into a text that becomes part of a value. Lone surrogates stay; ``storable`` cleans them later."""
    try:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "null"  # nested a thousand times; no real call is


class TooMuch(ValueError):
    """An answer has more of something than any model gives; the message says of what."""


DECODED_LIMIT_BYTES = 32 * 1024 * 1024
"""As much as the relay keeps of a response; bounds decompression bombs."""
MOST_MEMBERS = 10_000
"""Parts of a gzip body, each of which is compressed by itself. Servers that write a part per event have thousands."""
FIRST_WINDOW_BYTES, LAST_WINDOW_BYTES = 1024, 256 * 1024
"""zlib copies what it was given and didn't use, so a member gets little at first, and more if it needs more."""


class Undecodable(ValueError):
    """The bytes cannot be decoded; the message says why."""


class TooLong(Undecodable):
    """They are longer than the limit when decoded."""


def decode(body: bytes, content_encoding: str, limit: int = DECODED_LIMIT_BYTES) -> bytes:
    """Undo the encodings that ``content-encoding`` lists, in reverse order.

    Raises Undecodable; TooLong if the result is longer than ``limit`` bytes.
    """
    if not content_encoding:
        return body
    for encoding in reversed([name.strip().lower() for name in content_encoding.split(",")]):
        if encoding in ("", "identity"):
            continue
        decoder = DECODERS.get(encoding)
        if decoder is None:
            raise Undecodable(f"unknown content-encoding {encoding!r}")
        body = decoder(body, limit + 1)
        if len(body) > limit:
            raise TooLong(f"more than {limit} bytes when {encoding} is decoded")
    return body


def _gzip(body: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    members = at = 0
    # A gzip body may have several members.
    while at < len(body) and limit > 0:
        members += 1
        if members > MOST_MEMBERS:
            raise Undecodable(f"gzip: more than {MOST_MEMBERS} members")
        try:
            at, limit = _member(body, at, parts, limit)
        except zlib.error as error:
            if members > 1:
                break
            raise Undecodable(f"not gzip: {error}") from error
    return b"".join(parts)


def _member(body: bytes, at: int, parts: list[bytes], limit: int) -> tuple[int, int]:
    """Append what one member of a gzip body holds; return where the next begins, and what is left of the limit."""
    member, window = zlib.decompressobj(wbits=31), FIRST_WINDOW_BYTES
    while at < len(body) and limit > 0 and not member.eof:
        chunk = body[at : at + window]
        parts.append(member.decompress(chunk, limit))
        limit -= len(parts[-1])
        at += len(chunk) - len(member.unused_data)
        window = min(2 * window, LAST_WINDOW_BYTES)
    return at, limit


def _deflate(body: bytes, limit: int) -> bytes:
    # "deflate" means zlib (RFC 9110), but some servers send it raw.
    for wbits in (15, -15):
        try:
            return zlib.decompressobj(wbits=wbits).decompress(body, limit)
        except zlib.error:
            continue
    raise Undecodable("neither zlib nor raw deflate")


def _brotli(body: bytes, limit: int) -> bytes:
    import brotli

    try:
        unpacked = brotli.Decompressor().process(body, output_buffer_limit=limit)
        return bytes(unpacked)
    except brotli.error as error:
        raise Undecodable(f"not brotli: {error}") from error


def _zstd(body: bytes, limit: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            return reader.read(limit)
    except zstandard.ZstdError as error:
        raise Undecodable(f"not zstd: {error}") from error


DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
