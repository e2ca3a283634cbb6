"""An item of a YAML list, added as lines of text. Only lists in the usual style are changed."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from burnish.parts.connect.base import Keys

PLAIN = re.compile(r"[A-Za-z][\w./@-]*(?::[\w./@-]+)*", re.ASCII)
NOT_STRINGS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
NEXT_LINE = re.compile(r"(?:[ \t]*(?:#.*)?\r?\n)*(?P<indent>[ \t]*)(?P<item>- )?(?P<text>.*)")
"""After empty lines and comments."""


@dataclass(frozen=True, slots=True)
class YamlItem:
    """A new first item of a list: the list is the whole file, or the value of a key."""

    path: Path
    lines: Sequence[str]
    """Lines of the item without indentation; the first begins with a dash."""
    key: str | None = None
    head: str = ""
    """The start of a new file."""
    kind: ClassVar[str] = "YAML item"
    units: ClassVar[Collection[Keys]] = ()

    def made(self, text: str | None) -> str:
        """Raises ValueError if the list is written in another style."""
        text = self.head if text is None else text
        if text and not text.endswith("\n"):
            text += "\n"
        start = self._start(text)
        if start is None:
            return f"{text}{self.key}:\n{self._item('  ')}"
        following = NEXT_LINE.match(text, start)
        assert following  # it matches anything
        ends = not following["text"] or (self.key is not None and not following["indent"])
        if not following["item"] and not ends:
            raise ValueError(f"{self.key or 'it'} isn't a list, or is written in an unusual way")
        return text[:start] + self._item(following["indent"] if following["item"] else "") + text[start:]

    def _start(self, text: str) -> int | None:
        """Return the start of the list; None if there is no list yet. Raises ValueError."""
        if self.key is None:
            return 0
        match = re.search(rf"^{self.key}:(.*)\n", text, re.MULTILINE)
        if match is None:
            return None
        if match[1].partition("#")[0].strip():
            raise ValueError(f"{self.key} is written on one line")
        return match.end()

    def _item(self, indent: str) -> str:
        return "".join(f"{indent}{line}\n" for line in self.lines)


def scalar(text: str) -> str:
    """Write a string as YAML: plain if that is safe, else as JSON."""
    bare = PLAIN.fullmatch(text) and text.lower() not in NOT_STRINGS
    return text if bare else json.dumps(text, ensure_ascii=False)


def without_item(text: str, old_text: str, new_text: str) -> str:
    """Remove the lines that ``new_text`` has and ``old_text`` hasn't. Raises ValueError."""
    old, new = old_text.splitlines(), new_text.splitlines()
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    change = new[same : same + len(new) - len(old)]
    lines = text.splitlines(keepends=True)
    bare = [line.rstrip("\r\n") for line in lines]
    # In a new list, lines above the item are ours too; other items may have been added below them since.
    yaml_item = change[next(i for i, line in enumerate(change) if line.lstrip().startswith("- ")) :]
    for block in (change, yaml_item):
        positions = _positions(bare, block)
        if len(positions) == 1 and (
            block == yaml_item or not _has_more_items(bare[positions[0] + len(block) :])
        ):
            del lines[positions[0] : positions[0] + len(block)]
            return "".join(lines)
    raise ValueError("delete these lines by hand:\n" + "\n".join(change))


def _positions(lines: Sequence[str], block: Sequence[str]) -> list[int]:
    """Return the positions of a block of lines, at any indentation."""
    target = _at_left(block)
    return [i for i in range(len(lines)) if _at_left(lines[i : i + len(block)]) == target]


def _at_left(lines: Sequence[str]) -> list[str]:
    """Remove the indentation of the first item from all lines."""
    dash = next((line for line in lines if line.lstrip().startswith("- ")), "")
    indent = dash[: len(dash) - len(dash.lstrip())]
    return [line.removeprefix(indent) for line in lines]


def _has_more_items(lines: Sequence[str]) -> bool:
    texts = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return next(texts, "").lstrip().startswith("- ")
