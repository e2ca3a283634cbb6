"""Files of an import → their objects, one at a time, and the format that they look like."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from burnish.parts.datasets.examples import MESSAGES
from burnish.parts.datasets.parsed import FileRow, Problem
from burnish.parts.datasets.records import READERS
from burnish.system.regular import check_regular

OWN = "jsonl"
FILE_BYTES = 1024**4
WHOLE_BYTES = 64 * 1024 * 1024
"""A file of at most this size is read whole, so it may also be one object; a line or an item must not be longer."""
BLOCK_BYTES = 1024 * 1024
NOT_JSON = "it isn't JSON ({})"
NO_OBJECT = "it isn't a JSON object"
ROW_TOO_LARGE = f"it is larger than {WHOLE_BYTES // 1024**2} MiB"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LOOKED_AT = 1000
"""Objects at the beginning of a file by which its format is told."""


def rows_of(
    file: Path,
    prefix: str,
    problems: list[Problem],
    *,
    whole_bytes: int = WHOLE_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[FileRow]:
    """Yield the objects in a file; lines that hold none are added to the problems. Raises OSError."""
    check_regular(file, FILE_BYTES)
    with file.open("rb") as stream:
        if file.stat().st_size <= whole_bytes:
            values: Iterator[tuple[str, Any]] = iter(_values(stream.read().removeprefix(BYTE_ORDER_MARK)))
        else:
            values = _streamed(stream, block_bytes)
        for place, row in values:
            if isinstance(row, dict):
                yield FileRow(prefix + place, row)
            else:
                problems.append(Problem(prefix + place, row if isinstance(row, str) else NO_OBJECT))


def _values(content: bytes) -> list[tuple[str, Any]]:
    """Return what a file holds, with its places: the items of one JSON text, else the lines. A text is a fault."""
    lines = content.splitlines() if content.lstrip()[:1] != b"[" else []
    rows = [(f"line {number}", _value(line)) for number, line in enumerate(lines, 1) if line.strip()]
    if len(rows) == 1 or not any(isinstance(row, dict) for _, row in rows):
        whole = _value(content)
        if isinstance(whole, dict) and isinstance(whole.get("data"), list):
            whole = whole["data"]  # a page of an API
        if isinstance(whole, list):
            return [(f"item {number}", row if row != [] else None) for number, row in enumerate(whole, 1)]
        if isinstance(whole, dict) or not rows:
            return [("the file", whole)] if content.strip() else []
    return rows


def _value(text: bytes) -> Any:
    """Return the value of a JSON text, a text why there is none, or None for a bare value."""
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return NOT_JSON.format(error)
    return content if isinstance(content, dict | list) else None


# -- large files -------------------------------------------------------------------------------------------------------


def _streamed(stream: BinaryIO, block_bytes: int) -> Iterator[tuple[str, Any]]:
    """Yield what a file holds as ``_values`` does: the items of an array, else the lines."""
    begin = stream.read(block_bytes).removeprefix(BYTE_ORDER_MARK)
    is_array = begin.lstrip()[:1] == b"["
    stream.seek(0)
    texts = _items(stream, block_bytes) if is_array else _lines(stream)
    kind = "item" if is_array else "line"
    for number, text in enumerate(texts, 1):
        if text is None:
            yield f"{kind} {number}", ROW_TOO_LARGE
        elif stripped := text.strip():
            yield f"{kind} {number}", _value(stripped)


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines; None for one that is too long."""
    first = True
    while line := stream.readline(WHOLE_BYTES):
        text: bytes | None = line.removeprefix(BYTE_ORDER_MARK) if first else line
        first = False
        while line and not line.endswith(b"\n"):
            line = stream.readline(BLOCK_BYTES)
            text = None if line else text
        yield text


IN_STRING = re.compile(rb'["\\]')
OUTSIDE = re.compile(rb'["{}\[\],]')


def _items(stream: BinaryIO, block_bytes: int) -> Iterator[bytes | None]:
    """Yield the texts of an array's items; None for one that is too long."""
    depth, in_string, escaped = 0, False, False
    item: bytes | None = b""
    while block := stream.read(block_bytes):
        start = at = 0
        while at < len(block):
            if escaped:
                at, escaped = at + 1, False
                continue
            match = (IN_STRING if in_string else OUTSIDE).search(block, at)
            if match is None:
                break
            sign, at = match[0], match.end()
            if sign == b"\\":
                escaped = True
            elif sign == b'"':
                in_string = not in_string
            elif sign in (b"[", b"{"):
                depth += 1
                start = at if depth == 1 else start
            elif depth == 1:
                yield _with(item, block[start : at - 1])
                item, start = b"", at
                if sign != b",":
                    return
            elif sign != b",":
                depth -= 1
        item = _with(item, block[start:])
    yield item  # the file ends too early


def _with(item: bytes | None, text: bytes) -> bytes | None:
    """Add a piece to an item; None if it is too long."""
    return None if item is None or len(item) + len(text) > WHOLE_BYTES else item + text


# -- formats -----------------------------------------------------------------------------------------------------------


def format_of(file: Path, problems: list[Problem]) -> str | None:
    """Return the format that most of a file's first objects have; None: none of them has a known one."""
    rows = islice(rows_of(file, "", problems), LOOKED_AT)
    kinds = Counter(filter(None, (_kind(row.content) for row in rows)))
    return kinds.most_common(1)[0][0] if kinds else None


def _kind(content: Mapping[str, Any]) -> str | None:
    if content.get("object") in READERS and "id" in content:
        return OWN
    return next((name for name, looks in LOOKS.items() if looks(content)), None)


def _has(content: Mapping[str, Any], *names: str) -> bool:
    return all(name in content for name in names)


def _conversation(row: Mapping[str, Any]) -> bool:
    return any(isinstance(row.get(name), list) for name in MESSAGES)


LOOKS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "dpo": lambda row: _has(row, "chosen", "rejected") or "preferred_output" in row,
    "kto": lambda row: "label" in row and ("completion" in row or _conversation(row)),
    "langsmith": lambda row: "run_type" in row or _has(row, "run_id", "key"),
    "open-webui": lambda row: (
        "snapshot" in row or isinstance(row.get("chat"), dict) or isinstance(row.get("history"), dict)
    ),
    "sft": lambda row: (
        _conversation(row) or _has(row, "prompt", "completion") or _has(row, "instruction", "output")
    ),
    "langfuse": lambda row: (
        any(name in row for name in ("traceId", "observations", "trace"))
        or _has(row, "id", "input")
        or _has(row, "name", "value")
    ),
}
"""What an object of each format has; the first that fits is taken."""
