"""Responses → chat completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from burnish.proxy.http.errors import InvalidRequest
from burnish.proxy.surfaces import ChatRequest
from burnish.proxy.surfaces.lenient import Json, dumps, objects
from burnish.proxy.surfaces.responses_writer import ResponseWriter, Tool, begun
from burnish.proxy.translation.asking import ask

NEEDS_STATE = ("conversation", "prompt", "background")
"""Members that need state on the server."""
REPEATED = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id", "reasoning",
    "temperature", "text", "tool_choice", "tools", "top_p", "truncation", "user",
)  # fmt: skip
"""Members of a request that its response repeats."""


def as_chat(body: Json, request: ChatRequest) -> Json:
    """Return the chat request. Raises InvalidRequest if chat can't express it.

    Left out: tools that OpenAI's servers run, encrypted reasoning, storage settings, metadata.
    """
    for name in NEEDS_STATE:
        if body.get(name):
            raise InvalidRequest(
                f"{name} needs an upstream that speaks Responses: this one only speaks chat completions",
                param=name,
            )
    effort = body["reasoning"].get("effort") if isinstance(body.get("reasoning"), dict) else None
    return ask(
        [_message(message) for message in request.messages],
        request.params,
        stream=request.stream,
        tools=[_function(tool, space) for tool, space in _tools(body)],
        tool_choice=_choice(body.get("tool_choice")),
        max_tokens=body.get("max_output_tokens"),
        reasoning_effort=effort,
        response_format=_format(body),
    )


def writer(body: Json, completion_id: str, model: str) -> ResponseWriter:
    repeated = {name: body[name] for name in REPEATED if body.get(name) is not None}
    head = (
        begun(f"resp_{completion_id.partition('_')[2]}", model, body.get("previous_response_id")) | repeated
    )
    return ResponseWriter(head, completion_id, _renamed(body))


def _renamed(body: Json) -> dict[str, Tool]:
    """Return the tools that the model knows by another name or kind, by the model's name."""
    tools = {
        _name(tool, space): Tool(tool["name"], space, tool["type"] == "custom")
        for tool, space in _tools(body)
    }
    return {name: tool for name, tool in tools.items() if tool != Tool(name)}


def _tools(body: Json) -> Iterator[tuple[Json, str | None]]:
    """Return the tools that the client runs, with their namespaces."""
    for tool in objects(body.get("tools")):
        if tool.get("type") == "namespace":
            yield from (
                (nested_tool, str(tool.get("name")))
                for nested_tool in objects(tool.get("tools"))
                if _is_run(nested_tool)
            )
        elif _is_run(tool):
            yield tool, None


def _is_run(tool: Json) -> bool:
    return tool.get("type") in ("function", "custom") and isinstance(tool.get("name"), str)


def _name(tool: Json, space: Any) -> str:
    """Return the name under which the model knows a tool."""
    return f"{str(space).removesuffix('__')}__{tool['name']}" if space else str(tool["name"])


def _function(tool: Json, space: str | None) -> Json:
    described = str(tool.get("description") or "")
    parameters: Any = tool.get("parameters") or {"type": "object", "properties": {}}
    if tool["type"] == "custom":
        input_format = tool.get("format")
        if isinstance(input_format, dict) and input_format.get("definition"):
            described += (
                f"\n\nThe input follows this grammar ({input_format.get('syntax')}):\n"
                f"{input_format['definition']}"
            )
        parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    strict = {"strict": True} if tool.get("strict") is True else {}
    function = {"name": _name(tool, space), "description": described, "parameters": parameters, **strict}
    return {"type": "function", "function": function}


def _choice(choice: Any) -> Any:
    """Return the tool choice, if the client runs that tool."""
    if isinstance(choice, str):
        return choice
    if isinstance(choice, dict) and isinstance(choice.get("name"), str):
        return {"type": "function", "function": {"name": _name(choice, choice.get("namespace"))}}
    return None


def _message(message: Json) -> Json:
    """Return a message with its calls named as the model knows them."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_call(call) for call in calls]} if calls else message


def _call(call: Json) -> Json:
    called = call.get("function") or call["custom"]
    arguments = called["arguments"] if "arguments" in called else {"input": called.get("input")}
    text = arguments if isinstance(arguments, str) else dumps(arguments or {})
    function = {"name": _name(called, call.get("namespace")), "arguments": text}
    return {"id": call["id"], "type": "function", "function": function}


def _format(body: Json) -> Json | None:
    output_format: Any = body.get("text")
    output_format = output_format.get("format") if isinstance(output_format, dict) else None
    if not isinstance(output_format, dict) or output_format.get("type") not in ("json_object", "json_schema"):
        return None
    schema = {
        key: output_format[key]
        for key in ("name", "description", "schema", "strict")
        if output_format.get(key) is not None
    }
    return {"type": output_format["type"]} | (
        {"json_schema": schema} if output_format["type"] == "json_schema" else {}
    )
