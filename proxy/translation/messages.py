"""Messages → chat completions."""

from __future__ import annotations

from typing import Any

from burnish.proxy.surfaces import ChatRequest
from burnish.proxy.translation.asking import Json, ask, json_schema


def as_chat(body: Json, request: ChatRequest) -> Json:
    """Return the body that asks the same in chat.

    Left out: tools that Anthropic's servers run, how long to think, what to cache, metadata.
    """
    tools = request.params.get("tools")
    given = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return ask(
        request.messages,
        request.params,
        stream=request.stream,
        tools=[tool for tool in given if tool.get("type") == "function"],
        max_tokens=body.get("max_tokens"),
        response_format=_format(body),
    )


def _format(body: Json) -> Json | None:
    """Return which JSON the answer is to be."""
    wanted: Any = body.get("output_config")
    wanted = wanted.get("format") if isinstance(wanted, dict) else body.get("output_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None
    return json_schema(wanted.get("schema"), strict=True)
