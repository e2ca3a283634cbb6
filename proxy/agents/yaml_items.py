"""An item of a list in YAML, changed as lines, and only where they look as people usually write them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from burnish.proxy.agents.base import Keys

PLAIN = re.compile(r"[A-Za-z][\w./@-]*(?::[\w./@-]+)*", re.ASCII)
NO_TEXTS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
NEXT_LINE = re.compile(r"(?:[ \t]*(?:#.*)?\r?\n)*(?P<indent>[ \t]*)(?P<item>- )?(?P<said>.*)")
"""After empty lines and comments."""


@dataclass(frozen=True, slots=True)
class YamlItem:
    """An item before those of others: in a list that is the whole file, or one below a key of it."""

    path: Path
    lines: Sequence[str]
    """Those of the item, less what they are indented with; the first begins with a dash."""
    key: str | None = None
    head: str = ""
    """What a new file begins with."""
    kind: ClassVar[str] = "YAML item"
    units: ClassVar[Collection[Keys]] = ()

    def made(self, text: str | None) -> str:
        """Return the file with our item. Raises ValueError where the list is written in another way."""
        text = self.head if text is None else text
        if text and not text.endswith("\n"):
            text += "\n"
        start = self._start(text)
        if start is None:
            return f"{text}{self.key}:\n{self._item('  ')}"
        following = NEXT_LINE.match(text, start)
        assert following  # it matches anything
        ends = not following["said"] or (self.key is not None and not following["indent"])
        if not following["item"] and not ends:
            raise ValueError(f"{self.key or 'it'} is no list, or one that is written in an unusual way")
        return text[:start] + self._item(following["indent"] if following["item"] else "") + text[start:]

    def _start(self, text: str) -> int | None:
        """Return where the list begins; None: there is none, and its key comes to the end. Raises ValueError."""
        if self.key is None:
            return 0
        found = re.search(rf"^{self.key}:(.*)\n", text, re.MULTILINE)
        if found is None:
            return None
        if found[1].partition("#")[0].strip():
            raise ValueError(f"{self.key} is written on one line")
        return found.end()

    def _item(self, indent: str) -> str:
        return "".join(f"{indent}{line}\n" for line in self.lines)


def scalar(text: str) -> str:
    """Return a text as YAML takes it whatever stands in it: bare as its writers do where that is safe, else as JSON."""
    bare = PLAIN.fullmatch(text) and text.lower() not in NO_TEXTS
    return text if bare else json.dumps(text, ensure_ascii=False)


def without_item(now: str, before: str, after: str) -> str:
    """Return a file without the lines that made ``after`` of ``before``. Raises ValueError."""
    old, new = before.splitlines(), after.splitlines()
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    ours = new[same : same + len(new) - len(old)]
    lines = now.splitlines(keepends=True)
    bare = [line.rstrip("\r\n") for line in lines]
    # What stands above the item came with it, where there was no list; others may have joined it there since.
    item = ours[next(i for i, line in enumerate(ours) if line.lstrip().startswith("- ")) :]
    for block in (ours, item):
        found = _found(bare, block)
        if len(found) == 1 and (block == item or not _goes_on(bare[found[0] + len(block) :])):
            del lines[found[0] : found[0] + len(block)]
            return "".join(lines)
    raise ValueError("take these lines out of it by hand:\n" + "\n".join(ours))


def _found(lines: Sequence[str], block: Sequence[str]) -> list[int]:
    """Return where some lines stand, however far they are indented as a whole."""
    wanted = _at_left(block)
    return [i for i in range(len(lines)) if _at_left(lines[i : i + len(block)]) == wanted]


def _at_left(lines: Sequence[str]) -> list[str]:
    """Return lines less what their first item is indented with."""
    dash = next((line for line in lines if line.lstrip().startswith("- ")), "")
    indent = dash[: len(dash) - len(dash.lstrip())]
    return [line.removeprefix(indent) for line in lines]


def _goes_on(lines: Sequence[str]) -> bool:
    """Whether the list has more items."""
    said = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return next(said, "").lstrip().startswith("- ")
