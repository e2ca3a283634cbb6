"""What generated exchanges are made of: odd texts, numbers, headers, and JSON written as clients please.

A seed says everything, so that a failure is played again from its number; hypothesis draws the seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

Headers = list[tuple[bytes, bytes]]
Thing = TypeVar("Thing")

WORDS = (
    "", "Hello.", "Grüße aus Köln", "你好，世界", "👩\u200d👧 e\u0301", "\u202eעברית", 'a "quote" \\ and \\n',
    "a\tb\nc\r\x00\x7f\u2028", '{"model":"inner","messages":[', "what does /rl good do?", "burnish: rated good",
    "data: [DONE]\n\n", "</s>", "half \ue000", "long " * 400, "<system-reminder>be kind</system-reminder>",
)  # fmt: skip
HALF = "\\ud83d"
"""Half an emoji, as only an escape can say it; written for the letter U+E000."""
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Raw(str):
    """JSON as it stands, which no parser would write again the same way."""


NUMBERS = tuple(
    map(Raw, ("0", "-0.0", "1.0", "1E+2", "0.10000000000000000555", "123456789012345678901234567890", "1e-7"))
)

_TOKEN = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BLACK = bytes([*range(0x21, 0x7F), *range(0x80, 0x100)])
ASKS = (b"Accept", b"Cookie", b"User-Agent", b"Authorization", b"X-Api-Key", b"Accept-Encoding", b"Via")
ANSWERS = (
    b"X-Request-Id",
    b"Date",
    b"Server",
    b"ETag",
    b"Link",
    b"Vary",
    b"Retry-After",
    b"WWW-Authenticate",
)


class Chance(Random):
    def maybe(self, share: float = 0.5) -> bool:
        return self.random() < share

    def some(self, make: Callable[[], Thing], most: int = 3, least: int = 0) -> list[Thing]:
        return [make() for _ in range(self.randint(least, most))]

    def text(self) -> str:
        return " ".join(self.some(lambda: self.choice(WORDS), 2, 1))

    def name(self) -> str:
        return self.choice(("look", "add", "get_weather", "x-y_z", "mcp__a__b"))

    def value(self, depth: int = 2) -> Any:
        kind = self.randrange(8 if depth else 5)
        if kind >= 6:
            names = self.choices(("a", "model", "ü", "stream", ""), k=kind - 5)
            return {name: self.value(depth - 1) for name in names}
        if kind == 5:
            return self.some(lambda: self.value(depth - 1))
        return (None, self.maybe(), self.randint(-9, 9), self.choice(NUMBERS), self.choice(WORDS))[kind]

    def members(self, **makes: Callable[[], Any]) -> dict[str, Any]:
        """About half of some members."""
        return {name: make() for name, make in makes.items() if self.maybe()}

    def shuffled(self, members: dict[str, Any]) -> dict[str, Any]:
        return dict(self.sample(list(members.items()), len(members)))

    def cut(self, body: bytes, most: int = 6) -> list[bytes]:
        """A body in pieces, cut anywhere."""
        count = min(self.randrange(most), max(len(body) - 1, 0))
        places = sorted(self.sample(range(1, max(len(body), 1)), count))
        pieces = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
        return [piece for piece in pieces if piece]

    def headers(self, known: Sequence[bytes]) -> Headers:
        """Headers of any case, some of them twice."""
        found = [(self._header_name(known), self.header_value()) for _ in range(self.randrange(6))]
        return found + [(name.swapcase(), self.header_value()) for name, _ in found[:1] if self.maybe(0.3)]

    def header_value(self) -> bytes:
        first, middle = self.choices(_BLACK, k=2), self.choices(_BLACK + b" \t", k=self.randrange(12))
        return bytes([*first, *middle, self.choice(_BLACK)]) if self.maybe(0.9) else b""

    def _header_name(self, known: Sequence[bytes]) -> bytes:
        made = b"X-" + bytes(self.choices(_TOKEN, k=self.randint(1, 12)))
        return self.choice(known) if self.maybe() else made


def write(value: Any, chance: Chance, *, lines: bool = True) -> bytes:
    """Write JSON with white space, escapes and repeated members as some client might; ``lines``: also over several."""
    blanks = ("", "", " ", "\t ", *(("\n", "\r\n  ") if lines else ()))
    blank, escaping, repeats = chance.choice(blanks), chance.choice(ESCAPING), chance.maybe(0.1)

    def one(value: Any) -> str:
        if isinstance(value, Raw):
            return str(value)
        if isinstance(value, str):
            return escaping(value)
        if isinstance(value, dict):
            members = [f"{escaping(key)}{blank}:{blank}{one(each)}" for key, each in value.items()]
            members += members[-1:] if repeats else []
            return f"{{{blank}{f'{blank},'.join(members)}{blank}}}"
        if isinstance(value, list):
            return f"[{blank}{f',{blank}'.join(map(one, value))}{blank}]"
        return json.dumps(value)

    whole = f"{blank}{one(value)}{blank}"
    return whole.replace("\\ue000", HALF).replace("\ue000", HALF).encode()


_as_it_is = partial(json.dumps, ensure_ascii=False)
ESCAPING: Sequence[Callable[[str], str]] = (
    _as_it_is,
    json.dumps,
    lambda text: _as_it_is(text).replace("/", "\\/"),  # as PHP does
    lambda text: _as_it_is(text).replace("m", "\\u006d"),  # no other escape has an m
)
