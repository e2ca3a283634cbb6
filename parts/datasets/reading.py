"""Files to import: their lines, and which format they have. Pure, but for reading the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from burnish.parts.datasets.examples import read_dpo, read_kto, read_sft
from burnish.parts.datasets.formats import langfuse, langsmith, open_webui
from burnish.parts.datasets.found import Found, Item, Problem
from burnish.parts.datasets.records import READERS
from burnish.system.regular import check_regular

OWN = "jsonl"
IMPORT_BYTES = 1024**3
"""A file is read whole."""
FORMATS: Mapping[str, Callable[[list[Item], Found], None]] = {
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


def items_of(files: Sequence[Path]) -> tuple[list[Item], list[Problem]]:
    """Return the objects in files, and the lines that hold none. Raises OSError."""
    items: list[Item] = []
    problems: list[Problem] = []
    for file in files:
        prefix = f"{file.name}, " if len(files) > 1 else ""
        check_regular(file, IMPORT_BYTES)
        content = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
        for place, value in _values(content):
            if isinstance(value, dict):
                items.append(Item(prefix + place, value))
            else:
                problems.append(Problem(prefix + place, value if isinstance(value, str) else NO_OBJECT))
    return items, problems


def _values(content: bytes) -> list[tuple[str, Any]]:
    """Return what a file holds, with its places: the items of one JSON text, else the lines. A text is a fault."""
    lines = content.splitlines() if content.lstrip()[:1] != b"[" else []
    found = [(f"line {number}", _value(line)) for number, line in enumerate(lines, 1) if line.strip()]
    if len(found) == 1 or not any(isinstance(value, dict) for _, value in found):
        whole = _value(content)
        if isinstance(whole, dict) and isinstance(whole.get("data"), list):
            whole = whole["data"]  # a page of an API
        if isinstance(whole, list):
            return [
                (f"item {number}", value if value != [] else None) for number, value in enumerate(whole, 1)
            ]
        if isinstance(whole, dict) or not found:
            return [("the file", whole)] if content.strip() else []
    return found


def _value(text: bytes) -> Any:
    """Return the value of a JSON text, a text why there is none, or None for a bare value."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return NOT_JSON.format(error)
    return value if isinstance(value, dict | list) else None


def format_of(items: Sequence[Item]) -> str | None:
    """Return the format that most objects have; None: none of them has a known one."""
    kinds = Counter(filter(None, (_kind(item.content) for item in items)))
    return kinds.most_common(1)[0][0] if kinds else None


def _kind(content: Mapping[str, Any]) -> str | None:
    if content.get("object") in READERS and "id" in content:
        return OWN
    return next((name for name, looks in LOOKS.items() if looks(content)), None)


def _has(content: Mapping[str, Any], *names: str) -> bool:
    return all(name in content for name in names)


LOOKS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "dpo": lambda each: _has(each, "chosen", "rejected"),
    "kto": lambda each: _has(each, "completion", "label"),
    "tensorzero": lambda each: (
        _has(each, "function_name", "input")
        or _has(each, "target_id", "value")
        or _has(each, "inference_id", "value")
    ),
    "langsmith": lambda each: "run_type" in each or _has(each, "run_id", "key"),
    "open-webui": lambda each: (
        "snapshot" in each or isinstance(each.get("chat"), dict) or isinstance(each.get("history"), dict)
    ),
    "langfuse": lambda each: (
        any(name in each for name in ("traceId", "observations", "trace"))
        or _has(each, "id", "input")
        or _has(each, "name", "value")
    ),
    "sft": lambda each: "messages" in each or _has(each, "prompt", "completion"),
}
"""What an object of each format has; the first that fits is taken."""
