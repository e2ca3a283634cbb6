"""Set and remove members of JSON text; every other character stays unchanged, comments too.

Agents' files may be JSON5: with comments, commas at the end, names without quotes, other numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

Key = str | int
Path = Sequence[Key]
"""Names of members and indices of elements, outermost first."""
END = -1
"""As an index: behind the last element."""

COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
SPACE = re.compile(rf"(?:[\s\ufeff]|{COMMENT.pattern})*", re.DOTALL)
REST_OF_LINE = re.compile(rf"[ \t]*(?:{COMMENT.pattern})?[ \t]*(?=[\r\n])", re.DOTALL)
LINE_END = re.compile(r"[ \t]*\r?\n")
BLANK_BEFORE = re.compile(r"\s*\Z")
INDENT = re.compile(r"[ \t]*\Z")
DEFAULT_INDENT = "  "
STRING = re.compile(
    r"""(?P<quote>["'])(?P<inside>(?:(?!(?P=quote))[^\\\n\r]|\\(?:\r\n|.))*)(?P=quote)""", re.DOTALL
)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(\r\n|.))", re.DOTALL)
JSON_ESCAPES = '"\\/bfnrtu'
SHORT_ESCAPES = {"v": "\v", "0": "\0", "\n": "", "\r": "", "\r\n": "", "\u2028": "", "\u2029": ""}
NAME = re.compile(r"(?:[^\W\d]|\$)[\w$]*")
WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
NUMBER = re.compile(r"[+-]?(?:0[xX](?P<hex>[0-9a-fA-F]+)|Infinity|NaN|[0-9.][0-9a-zA-Z.+-]*)")
MOST_DEPTH = 200
"""Of values in values, as no settings have."""
_decoder = json.JSONDecoder()


class _Child(NamedTuple):
    """A member of an object or an element of a list, by its place in the text."""

    key: Key
    start: int
    """Of the member's name; of the element itself."""
    content_start: int
    end: int
    content: Any


def parse(text: str) -> dict[str, Any]:
    """Return what a file of settings says; an empty one says nothing. Raises ValueError."""
    start = _after(text, 0)
    if start == len(text):
        return {}
    try:
        parsed, end = _value_at(text, start)
    except IndexError:
        raise ValueError("it isn't valid JSON: it ends too early") from None
    if (rest := _after(text, end)) < len(text):
        raise _invalid(text, rest)
    if not isinstance(parsed, dict):
        raise ValueError(f"it contains {type(parsed).__name__}, not an object")
    return parsed


def put(text: str, path: Path, content: Any) -> str:
    """Set a member, or an element at END; containers that are not there are made. Raises ValueError."""
    start = _after(text, 0)
    if start == len(text):  # nothing, or comments only
        text = f"{text.rstrip()}\n{{}}\n".lstrip()
        start = text.rindex("{")
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
    child, last = children[index], index == len(children) - 1
    follows = _after(text, child.end)
    before = children[index - 1].end if index else container + 1
    beside = text[before : child.start] + text[child.end : children[index + 1].start if not last else follows]
    if COMMENT.search(beside) or (last and text[follows] == ","):
        return _removed_beside_comments(text, before, child, last=last and index > 0)
    if len(children) == 1:
        return text[: container + 1] + text[follows:]
    if index == 0:
        return text[: child.start] + text[children[1].start :]
    return text[:before] + text[child.end :]


def _removed_beside_comments(text: str, before: int, child: _Child, *, last: bool) -> str:
    """Take out a child with the comma behind it, or the one before it if it is the last; comments stay."""
    follows = _after(text, child.end)
    end = follows + 1 if text[follows] == "," else child.end
    kept = text[child.end : follows] if text[follows] == "," else ""  # comments before the comma
    head = text[before : child.start]
    if last and end == child.end:
        comma = SPACE.match(head).end()  # type: ignore[union-attr]
        head = head[:comma] + head[comma + 1 :]
    blank = BLANK_BEFORE.search(head)
    assert blank  # it matches anything
    # A line of its own goes as a whole. Behind a comment its line end must stay.
    line_end = LINE_END.match(text, end)
    if "\n" not in blank[0]:
        head = head[: blank.start()]
    elif line_end and not kept.strip():
        head, end = head[: blank.start()] + _newline(text), line_end.end()
    return text[:before] + head + kept + text[end:]


def _inserted(text: str, start: int, depth: int, content: Any, name: str | None = None) -> str:
    """Put a new last child into the object or list that begins at ``start``, ``depth`` levels below the top."""
    children = _children(text, start)
    dumped = _dumped(text, content, depth + 1)
    if name is not None:
        dumped = f"{json.dumps(name, ensure_ascii=False)}: {dumped}"
    if not children:
        end = _after(text, start + 1)
        unit, newline = _indent(text), _newline(text)
        comments = text[start + 1 : end].rstrip() if COMMENT.search(text, start + 1, end) else ""
        inside = f"{comments}{newline}{unit * (depth + 1)}{dumped}{newline}{unit * depth}"
        return text[: start + 1] + (inside if comments or _spread(text) else dumped) + text[end:]
    last = children[-1]
    before = children[-2].end if len(children) > 1 else start + 1
    between = text[before : last.start]
    follows = _after(text, last.end)
    trailing = text[follows] == ","
    if trailing or COMMENT.search(between) or COMMENT.search(text[last.end : follows]):
        # Comments that stand behind the last child on its line are its own.
        end = follows + 1 if trailing else last.end
        line_end = REST_OF_LINE.match(text, end)
        at = line_end.end() if line_end else end
        blank = BLANK_BEFORE.search(between)
        space = blank[0] if blank and blank[0] else " "
        if trailing:
            return text[:at] + space + dumped + "," + text[at:]
        return text[:end] + "," + text[end:at] + space + dumped + text[at:]
    # On one line there is a space after each comma.
    alone = "," + (between or " ")
    return text[: last.end] + (between if len(children) > 1 else alone) + dumped + text[last.end :]


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
    """Return the children of the object or list that begins at ``start``, in order. Raises ValueError."""
    return _container(text, start, 0)[0]


def _container(text: str, start: int, depth: int) -> tuple[list[_Child], int]:
    """Return the children, and where the object or list ends. Raises ValueError, IndexError (the text ends)."""
    if depth > MOST_DEPTH:
        raise ValueError("it holds too many objects in objects")
    is_object = text[start] == "{"
    close = "}" if is_object else "]"
    children: list[_Child] = []
    at = _after(text, start + 1)
    while text[at] != close:
        key: Key = len(children)
        begin = at
        if is_object:
            key, at = _name_at(text, at)
            at = _after(text, _demanded(text, _after(text, at), ":"))
        content, end = _value_at(text, at, depth + 1)
        children.append(_Child(key, begin, at, end, content))
        at = _after(text, end)
        if text[at] != close:
            at = _after(text, _demanded(text, at, ","))
    return children, at + 1


def _demanded(text: str, at: int, sign: str) -> int:
    """Return where a sign ends that must stand somewhere. Raises ValueError."""
    if text[at] != sign:
        raise _invalid(text, at)
    return at + 1


def _value_at(text: str, at: int, depth: int = 0) -> tuple[Any, int]:
    """Return the value that begins somewhere, and where it ends. Raises ValueError, IndexError (the text ends)."""
    if text[at] in '{["':
        with suppress(json.JSONDecodeError, RecursionError):  # most is plain JSON, and read fast
            return _decoder.raw_decode(text, at)
    if text[at] in "{[":
        children, end = _container(text, at, depth)
        if text[at] == "{":
            return {child.key: child.content for child in children}, end
        return [child.content for child in children], end
    if text[at] in "\"'":
        return _string_at(text, at)
    if (name := NAME.match(text, at)) and name[0] in WORDS:
        return WORDS[name[0]], name.end()
    number = NUMBER.match(text, at)
    if number is None:
        raise _invalid(text, at)
    written = number[0]
    try:
        if number["hex"]:
            return int(written, 16), number.end()
        return (int if written.lstrip("+-").isdecimal() else float)(written), number.end()
    except ValueError:
        raise _invalid(text, at) from None


def _name_at(text: str, at: int) -> tuple[str, int]:
    if text[at] in "\"'":
        return _string_at(text, at)
    if name := NAME.match(text, at):
        return name[0], name.end()
    raise _invalid(text, at)


def _string_at(text: str, at: int) -> tuple[str, int]:
    match = STRING.match(text, at)
    if match is None:
        raise _invalid(text, at)
    inside = ESCAPE.sub(_unescaped, match["inside"])
    if match["quote"] == "'":
        inside = re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', inside)
    try:
        return json.loads(f'"{inside}"', strict=False), match.end()
    except json.JSONDecodeError:
        raise _invalid(text, at) from None


def _unescaped(escape: re.Match[str]) -> str:
    """Return an escape of JSON5 as JSON has it."""
    if escape[1]:
        return json.dumps(chr(int(escape[1], 16)))[1:-1]
    if escape[2] in JSON_ESCAPES:
        return escape[0]
    return json.dumps(SHORT_ESCAPES.get(escape[2], escape[2]))[1:-1]


def _invalid(text: str, at: int) -> ValueError:
    line, rest = text.count("\n", 0, at) + 1, text[at : at + 20].partition("\n")[0]
    return ValueError(f"it isn't valid JSON at {rest!r} in line {line}")


def _after(text: str, at: int) -> int:
    """Return where the white space ends."""
    return SPACE.match(text, at).end()  # type: ignore[union-attr]


def _refuse_other(text: str, start: int, path: Path, depth: int) -> None:
    """Refuse a path that goes through something else than it says."""
    bracket, kind = ("[", "a list") if path[depth] == END else ("{", "an object")
    if text[start] != bracket:
        raise ValueError(f"{'.'.join(map(str, path[:depth])) or 'it'} isn't {kind}")
