"""Set and remove members of JSON text; every other character stays unchanged.

Only plain JSON: a comment in the file might belong to a removed member, so such a file is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

Key = str | int
Path = Sequence[Key]
"""Names of members and indices of elements, outermost first."""
END = -1
"""As an index: behind the last element."""

SPACE = re.compile(r"[ \t\n\r]*")
INDENT = re.compile(r"[ \t]*\Z")
DEFAULT_INDENT = "  "

_decoder = json.JSONDecoder()


class _Child(NamedTuple):
    """A member of an object or an element of a list, by its place in the text."""

    key: Key
    start: int
    """Of the member's name; of the element itself."""
    content_start: int
    end: int


def parse(text: str) -> dict[str, Any]:
    """Return what a file of settings says; an empty one says nothing. Raises ValueError."""
    if not text.strip():
        return {}
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError(f"it contains {type(parsed).__name__}, not an object")
    return parsed


def put(text: str, path: Path, content: Any) -> str:
    """Set a member, or an element at END; containers that are not there are made. Raises ValueError."""
    if not text.strip():
        text = "{}\n"
    start = _after(text, 0)
    for depth, key in enumerate(path):
        _refuse_other(text, start, path, depth)
        child = None if key == END else _child(text, start, key)
        if child is None:
            for inner in reversed(path[depth + 1 :]):
                content = [content] if inner == END else {inner: content}
            return _inserted(text, start, depth, content, None if key == END else str(key))
        start, end = child.content_start, child.end
    return text[:start] + _dumped(text, content, len(path)) + text[end:]


def remove(text: str, path: Path) -> str:
    """Take out a member or an element; what is not there stays away."""
    *outer, key = path
    container = _value(text, outer)
    if container is None or text[container] not in "{[":
        return text
    children = _children(text, container)
    index = next((i for i in reversed(range(len(children))) if children[i].key == key), None)
    if index is None:
        return text
    if len(children) == 1:
        return text[: container + 1] + text[_after(text, children[0].end) :]
    if index == 0:
        return text[: children[0].start] + text[children[1].start :]
    return text[: children[index - 1].end] + text[children[index].end :]


def _inserted(text: str, start: int, depth: int, content: Any, name: str | None = None) -> str:
    """Put a new last child into the object or list that begins at ``start``, ``depth`` levels below the top."""
    children = _children(text, start)
    dumped = _dumped(text, content, depth + 1)
    if name is not None:
        dumped = f"{json.dumps(name, ensure_ascii=False)}: {dumped}"
    if not children:
        end = _after(text, start + 1)
        unit, newline = _indent(text), _newline(text)
        inside = f"{newline}{unit * (depth + 1)}{dumped}{newline}{unit * depth}"
        return text[: start + 1] + (inside if _spread(text) else dumped) + text[end:]
    last = children[-1]
    # On one line there is a space after each comma.
    alone = "," + (text[start + 1 : last.start] or " ")
    between = text[children[-2].end : last.start] if len(children) > 1 else alone
    return text[: last.end] + between + dumped + text[last.end :]


def _dumped(text: str, content: Any, depth: int) -> str:
    """Write a value as the text around it is written: on lines of its own, or on one."""
    if not _spread(text):
        return json.dumps(content, ensure_ascii=False)
    lines = json.dumps(content, ensure_ascii=False, indent=_indent(text)).split("\n")
    return (_newline(text) + _indent(text) * depth).join(lines)


def _spread(text: str) -> bool:
    return "\n" in text.strip() or text.strip() == "{}"


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str) -> str:
    """Return what the members of the outermost object are indented with."""
    children = _children(text, SPACE.match(text).end())  # type: ignore[union-attr]
    match = INDENT.search(text, 0, children[0].start) if children else None
    return (match[0] if match else "") or DEFAULT_INDENT


def _value(text: str, path: Path) -> int | None:
    """Return where a value begins; None when it is not there."""
    start = _after(text, 0)
    for key in path:
        child = _child(text, start, key) if start < len(text) and text[start] in "{[" else None
        if child is None:
            return None
        start = child.content_start
    return start if start < len(text) else None


def _child(text: str, start: int, key: Key) -> _Child | None:
    """Return a child by its name or index; of several with one name the last, as every parser does."""
    return next((child for child in reversed(_children(text, start)) if child.key == key), None)


def _children(text: str, start: int) -> list[_Child]:
    """Return the children of the object or list that begins at ``start``, in order."""
    is_object = text[start] == "{"
    children: list[_Child] = []
    at = _after(text, start + 1)
    while text[at] not in "}]":
        key: Key = len(children)
        begin = at
        if is_object:
            key, at = scanstring(text, at + 1)
            at = _after(text, _after(text, at) + 1)  # the colon
        _, end = _decoder.raw_decode(text, at)
        children.append(_Child(key, begin, at, end))
        at = _after(text, end)
        if text[at] == ",":
            at = _after(text, at + 1)
    return children


def _after(text: str, at: int) -> int:
    """Return where the white space ends."""
    return SPACE.match(text, at).end()  # type: ignore[union-attr]


def _refuse_other(text: str, start: int, path: Path, depth: int) -> None:
    """Refuse a path that goes through something else than it says."""
    bracket, kind = ("[", "a list") if path[depth] == END else ("{", "an object")
    if text[start] != bracket:
        raise ValueError(f"{'.'.join(map(str, path[:depth])) or 'it'} isn't {kind}")
