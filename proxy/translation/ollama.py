"""Ollama's formats → chat completions."""

from __future__ import annotations

from collections.abc import Callable

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces import ChatRequest
from burnish.proxy.surfaces.ollama_writer import now
from burnish.proxy.translation.asking import Json, ask, json_schema

NOT_CHAT = ("raw", "suffix", "template", "context")
"""Members of ``/api/generate`` that make another text than the model's own template would."""
NO_TIME = (0, "0", "0s", "0m")
"""How long a model is to be kept that is to be freed."""


def as_chat(body: Json, request: ChatRequest) -> Json:
    """Return the body that asks the same in chat. Raises InvalidRequest where that cannot be.

    Left out: how long to keep the model, what is set of its runner (``num_ctx``), whether to think.
    """
    for name in NOT_CHAT:
        if body.get(name):
            raise InvalidRequest(
                f"the upstream knows chat completions only, and burnish cannot give it what {name} means; "
                "send prompt and system alone",
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
        # Less than one means as many as it likes.
        max_tokens=limit if isinstance(limit, int) and limit > 0 else None,
        repetition_penalty=options.get("repeat_penalty"),
        reasoning_effort=effort if isinstance(effort, str) else None,
        response_format=_format(body),
    )


def loaded(body: Json, request: ChatRequest, saying: Callable[[Json], Json]) -> Json:
    """Return the answer to a request for a model to be loaded, or freed: the upstream sees to that itself."""
    reason = "unload" if body.get("keep_alive") in NO_TIME else "load"
    done = {"done": True, "done_reason": reason}
    return {"model": request.model, "created_at": now(), **saying({"content": ""}), **done}


def _format(body: Json) -> Json | None:
    """Return which JSON the answer is to be."""
    wanted = body.get("format")
    if wanted == "json":
        return {"type": "json_object"}
    return json_schema(wanted) if isinstance(wanted, dict) and wanted else None
