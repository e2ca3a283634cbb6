"""The principles that a judge goes by: the list items of a Markdown text. All else in it is for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from burnish.proxy.http.errors import Conflict, Unprocessable
from burnish.proxy.plain import plain
from burnish.system.regular import SETTINGS_BYTES, check_regular

FILE = "principles.md"
"""In the data directory."""
MOST = 20
"""With more, a judge reads none of them closely."""
MAX_CHARACTERS = 400
"""Of one principle."""
DIGEST_BYTES = 5
EXAMPLE = """
- Answer in three sentences at most, unless the question asks for more.
- Say so if you aren't sure, and don't make anything up.
- Be friendly, without flattery.
"""
ADVICE = f"Write one principle in each line, for example:\n{EXAMPLE}"

_BULLET = re.compile(r"\s{0,3}(?:[-*+]|\d{1,3}[.)])\s+(?P<text>\S.*)")
_GOES_ON = re.compile(r"\s{2,}(?P<text>\S.*)")
"""A further line of an item is indented."""


@dataclass(frozen=True, slots=True)
class Principles:
    texts: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return what tells these principles from others."""
        return blake2b("\n".join(self.texts).encode(), digest_size=DIGEST_BYTES).hexdigest()

    def numbered(self) -> str:
        return "\n".join(f"{number}. {text}" for number, text in enumerate(self.texts, 1))


def read(data_dir: Path) -> Principles:
    """Read the file in the data directory. Raises Conflict, Unprocessable."""
    path = data_dir / FILE
    try:
        check_regular(path, SETTINGS_BYTES)
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise Conflict(
            f"there are no principles yet: {path} is missing. {ADVICE}", code="no_principles"
        ) from error
    except UnicodeDecodeError as error:
        raise Unprocessable(f"{path} isn't a UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise Conflict(f"{path} can't be read: {error.strerror}", code="no_principles") from error
    return parse(text, str(path))


def parse(text: str, where: str) -> Principles:
    """Return the principles in a text; ``where`` names it in errors. Raises Unprocessable."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if bullet := _BULLET.fullmatch(line):
            lines.append(bullet["text"])
            inside = True
        elif inside and (continuation := _GOES_ON.fullmatch(line)):
            lines[-1] += " " + continuation["text"]
        else:
            inside = False
    texts = tuple(dict.fromkeys(filter(None, (" ".join(plain(line).split()) for line in lines))))
    if not texts:
        raise Unprocessable(f"there is no principle in {where}. {ADVICE}", param="principles")
    if len(texts) > MOST:
        raise Unprocessable(
            f"there are {len(texts)} principles in {where}, but a judge takes {MOST} at most: keep those that matter",
            param="principles",
        )
    if long := next((principle for principle in texts if len(principle) > MAX_CHARACTERS), None):
        raise Unprocessable(
            f"a principle in {where} is longer than {MAX_CHARACTERS} characters: “{long[:60]}…”. Split or shorten it",
            param="principles",
        )
    return Principles(texts)
