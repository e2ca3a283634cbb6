"""Files to import: their lines, and which format they have. Pure, but for reading the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from burnish.parts.datasets.examples import read_dpo, read_kto, read_sft
from burnish.parts.datasets.formats import langfuse, langsmith, open_webui
from burnish.parts.datasets.parsed import FileRow, ParsedExport, Problem
from burnish.parts.datasets.records import READERS
from burnish.system.regular import check_regular

OWN = "jsonl"
IMPORT_BYTES = 1024**3
"""A file is read whole."""
FORMATS: Mapping[str, Callable[[list[FileRow], ParsedExport], None]] = {
    "sft": read_sft,
    "dpo": read_dpo,
    "kto": read_kto,
    "langfuse": langfuse.read,
    "open-webui": open_webui.read,
    "langsmith": langsmith.read,
}
REMOVED = {
    "tensorzero": "burnish no longer reads exports of TensorZero, which is archived: write its answers and ratings as "
    "lines of kto, dpo or sft, and import those",
}
"""Formats that earlier versions read, with what to do instead."""
NOT_JSON = "it isn't JSON ({})"
NO_OBJECT = "it isn't a JSON object"


def rows_of(files: Sequence[Path]) -> tuple[list[FileRow], list[Problem]]:
    """Return the objects in files, and the lines that hold none. Raises OSError."""
    rows: list[FileRow] = []
    problems: list[Problem] = []
    for file in files:
        prefix = f"{file.name}, " if len(files) > 1 else ""
        check_regular(file, IMPORT_BYTES)
        content = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
        for place, row in _values(content):
            if isinstance(row, dict):
                rows.append(FileRow(prefix + place, row))
            else:
                problems.append(Problem(prefix + place, row if isinstance(row, str) else NO_OBJECT))
    return rows, problems


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


def format_of(rows: Sequence[FileRow]) -> str | None:
    """Return the format that most objects have; None: none of them has a known one."""
    kinds = Counter(filter(None, (_kind(row.content) for row in rows)))
    return kinds.most_common(1)[0][0] if kinds else None


def _kind(content: Mapping[str, Any]) -> str | None:
    if content.get("object") in READERS and "id" in content:
        return OWN
    return next((name for name, looks in LOOKS.items() if looks(content)), None)


def _has(content: Mapping[str, Any], *names: str) -> bool:
    return all(name in content for name in names)


LOOKS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "dpo": lambda row: _has(row, "chosen", "rejected"),
    "kto": lambda row: _has(row, "completion", "label"),
    "tensorzero": lambda row: (
        _has(row, "function_name", "input")
        or _has(row, "target_id", "value")
        or _has(row, "inference_id", "value")
    ),
    "langsmith": lambda row: "run_type" in row or _has(row, "run_id", "key"),
    "open-webui": lambda row: (
        "snapshot" in row or isinstance(row.get("chat"), dict) or isinstance(row.get("history"), dict)
    ),
    "langfuse": lambda row: (
        any(name in row for name in ("traceId", "observations", "trace"))
        or _has(row, "id", "input")
        or _has(row, "name", "value")
    ),
    "sft": lambda row: "messages" in row or _has(row, "prompt", "completion"),
}
"""What an object of each format has; the first that fits is taken."""
