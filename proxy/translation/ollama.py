"""Ollama's formats → chat completions."""

from __future__ import annotations

from collections.abc import Callable

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces import ChatRequest
from burnish.proxy.surfaces.ollama_writer import now
from burnish.proxy.translation.asking import Json, ask, json_schema

NOT_CHAT = ("raw", "suffix", "template", "context")
"""Members of ``/api/generate`` that bypass the model's chat template."""
NO_TIME = (0, "0", "0s", "0m")
"""``keep_alive`` values that unload a model."""


def as_chat(body: Json, request: ChatRequest) -> Json:
    """Return the chat request. Raises InvalidRequest if chat can't express it.

    Left out: ``keep_alive``, options of the runner (``num_ctx``), whether to think.
    """
    for name in NOT_CHAT:
        if body.get(name):
            raise InvalidRequest(
                f"{name} needs an upstream that speaks Ollama's format: this one only speaks chat completions; "
                "send only prompt and system",
                param=name,
            )
    given, params = body.get("options"), request.params
    options = given if isinstance(given, dict) else {}
    tools, limit, effort = params.get("tools"), params.get("max_tokens"), body.get("think")
    return ask(
        request.messages,
        params,
        stream=request.stream,
        tools=[
            {"type": "function", "function": tool["function"]}
            for tool in (tools if isinstance(tools, list) else ())
            if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
        ],
        # Below one means no limit.
        max_tokens=limit if isinstance(limit, int) and limit > 0 else None,
        repetition_penalty=options.get("repeat_penalty"),
        reasoning_effort=effort if isinstance(effort, str) else None,
        response_format=_format(body),
    )


def loaded(body: Json, request: ChatRequest, members_of: Callable[[Json], Json]) -> Json:
    """Answer a request that only loads or unloads a model, which the upstream does by itself."""
    reason = "unload" if body.get("keep_alive") in NO_TIME else "load"
    done = {"done": True, "done_reason": reason}
    return {"model": request.model, "created_at": now(), **members_of({"content": ""}), **done}


def _format(body: Json) -> Json | None:
    """Return the ``response_format``, if any."""
    wanted = body.get("format")
    if wanted == "json":
        return {"type": "json_object"}
    return json_schema(wanted) if isinstance(wanted, dict) and wanted else None
