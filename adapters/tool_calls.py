"""Tests of tool calls in OpenAI's chat format, without running them.

As crude as ``replies``, and for the same reason: two versions are compared on the same prompts. Only names and required
parameters are checked, not the types of values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Call = Mapping[str, Any]
Tool = Mapping[str, Any]

# The tags of calls in common chat templates; an engine that parses a call removes them from the text.
_TAGS = re.compile(r"</?\|?tool_call|</?function[=>]|<\|python_tag\|>|\[TOOL_CALLS\]")


def broken(call: Call, tools: Sequence[Tool]) -> bool:
    """A call can't be run: unknown tool, arguments that aren't a JSON object, or required ones missing."""
    called, arguments = _function(call).get("name"), _arguments(_function(call))
    offered = [tool for tool in tools if isinstance(called, str) and _function(tool).get("name") == called]
    return not offered or arguments is None or not _required(offered[0]) <= arguments.keys()


def left_in_text(text: str) -> bool:
    """A text holds a call that the engine didn't parse, in a template's tags or as bare JSON."""
    return bool(_TAGS.search(text)) or _is_bare_call(text)


def readable(call: Call) -> str:
    """Return a call for people, e.g. ``→ weather(city="Paris", days=3)``; a broken one as far as possible."""
    function = _function(call)
    arguments = _arguments(function)
    if arguments is None:
        inside = str(function.get("arguments") or "")
    else:
        inside = ", ".join(
            f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()
        )
    return f"→ {function.get('name') or '(no name)'}({inside})"


def _function(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the function of a tool or of a call; empty if it has none."""
    found = holder.get("function")
    return found if isinstance(found, Mapping) else {}


def _required(tool: Tool) -> frozenset[str]:
    parameters = _function(tool).get("parameters")
    names = parameters.get("required") if isinstance(parameters, Mapping) else None
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _arguments(function: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a call; None if they aren't a JSON object."""
    given = function.get("arguments")
    if given in (None, ""):  # some engines write this if a tool takes no arguments
        return {}
    return given if isinstance(given, dict) else _json_object(given)


def _is_bare_call(text: str) -> bool:
    found = _json_object(text) or {}
    return isinstance(found.get("name"), str) and bool(found.keys() & {"arguments", "parameters"})


def _json_object(text: Any) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
