"""What is wrong with a setting, in words: which numbers it takes, in which unit, and what was given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

PLAIN_FAULTS = {
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "missing": "is missing: set it",
}

NUMBER_FAULTS = frozenset(
    {
        "int_parsing",
        "int_type",
        "int_from_float",
        "float_parsing",
        "float_type",
        "finite_number",
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
    }
)


def explain(error: ValidationError, schema: type[BaseModel]) -> str:
    """Return one line for each wrong setting: its name, what it may be, and what it was."""
    lines = []
    for problem in error.errors(include_url=False):
        if problem["type"] == "default_factory_not_called":
            continue  # its default depends on another setting, whose fault is named
        *above, last = problem["loc"] or ("configuration",)
        message = PLAIN_FAULTS.get(problem["type"], problem["msg"].removeprefix("Value error, "))
        if problem["type"] in NUMBER_FAULTS:
            message = _number(_setting(schema, problem["loc"])) or message
        if last == "[key]":
            above, last = above[:-1], above[-1]
            message = "a name has at most 40 characters: the letters a to z, digits, and - or _ between them"
        key = ".".join(map(str, (*above, last)))
        # A whole table may hold a key.
        silent = "key" in key or not problem["loc"] or isinstance(problem["input"], dict)
        given = re.sub(r"[^\s,]+@", "…@", repr(problem["input"]))  # no user and password of a URL
        lines.append(f"  {key}: {message}" + ("" if silent else f" (given: {given})"))
    return "\n".join(lines)


def _setting(schema: type[BaseModel], path: Sequence[int | str]) -> FieldInfo | None:
    """Return the declaration of a setting in a table such as ``train``; None for what isn't one."""
    model: Any = schema
    for name in path[:-1]:
        model = model.model_fields[name].annotation if name in getattr(model, "model_fields", ()) else None
    field: FieldInfo | None = getattr(model, "model_fields", {}).get(path[-1])
    return field


def _number(setting: FieldInfo | None) -> str | None:
    """Return which numbers a setting takes, in words."""
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    limits = [
        f"{word} {limit}"
        for constraint in (setting.metadata if setting else ())
        for name, word in words.items()
        if (limit := getattr(constraint, name, None)) is not None
    ]
    if not setting or not limits:
        return None
    extra = setting.json_schema_extra
    unit = f" {extra['unit']}" if isinstance(extra, dict) and "unit" in extra else ""
    whole = "a whole number" if "int" in str(setting.annotation) else "a number"
    return f"must be {whole}{unit and ' of'}{unit}, {' and '.join(limits)}"
