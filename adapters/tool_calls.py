"""What can be seen of tool calls without running them, in the form of OpenAI's chat protocol: tools, and calls of them.

As crude as ``replies``, and for the same reason: two versions are compared on the same prompts. Only the names and the
required parameters of a schema are looked at, not the types of values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Call = Mapping[str, Any]
Tool = Mapping[str, Any]

# How the common chat templates begin or end a call; an engine that could parse it would not have left that in the text.
_MARKS = re.compile(r"</?\|?tool_call|</?function[=>]|<\|python_tag\|>|\[TOOL_CALLS\]")


def broken(call: Call, tools: Sequence[Tool]) -> bool:
    """Whether a call cannot be run: no such tool, arguments that are no JSON object, or required ones missing."""
    called, arguments = _function(call).get("name"), _arguments(_function(call))
    offered = [tool for tool in tools if isinstance(called, str) and _function(tool).get("name") == called]
    return not offered or arguments is None or not _required(offered[0]) <= arguments.keys()


def left_in_text(text: str) -> bool:
    """Whether a text holds a call that the engine did not take for one, marked as such or as bare JSON."""
    return bool(_MARKS.search(text)) or _is_bare_call(text)


def readable(call: Call) -> str:
    """Return a call for people to read: ``→ weather(city="Paris", days=3)``; of a broken one what there is."""
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
    """Return the function of a tool or of a call, empty where it has none."""
    found = holder.get("function")
    return found if isinstance(found, Mapping) else {}


def _required(tool: Tool) -> frozenset[str]:
    parameters = _function(tool).get("parameters")
    names = parameters.get("required") if isinstance(parameters, Mapping) else None
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _arguments(function: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a call; None when they are no JSON object."""
    given = function.get("arguments")
    if given in (None, ""):  # so some engines write a call of a tool that takes none
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
