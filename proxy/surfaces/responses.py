"""OpenAI's Responses: ``POST /v1/responses``.

A client that lets the server hold its history sends the id of the previous answer. If that is our answer to a command,
the upstream doesn't know it. Our id holds the upstream's, so burnish needs no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from burnish.proxy.http.errors import BurnishError, InvalidRequest
from burnish.proxy.surfaces.asking import ask
from burnish.proxy.surfaces.base import (
    ChatRequest,
    Reply,
    Translatable,
    before_ours,
    model_of,
    our_id,
    unread,
    wants_stream,
    with_text,
    without_items,
    wrong_type,
)
from burnish.proxy.surfaces.ends import failure, reason_of
from burnish.proxy.surfaces.items import COMMAND_PREFIX, ReadItems, messages_of, read_items, streamed_names
from burnish.proxy.surfaces.lenient import Json, as_text, dumps, error_in, object_in, objects, storable
from burnish.proxy.surfaces.responses_stream import streamed
from burnish.proxy.surfaces.responses_writer import ResponseWriter, Tool, begun
from burnish.proxy.surfaces.sse import is_streamed
from burnish.proxy.surfaces.writing import LocalAnswer, local_answer

OUR_PREFIX = "resp_rl_"
"""Prefix of the ids of our answers to commands."""
CONVERTED_MEMBERS = frozenset(
    {"input", "instructions", "model", "previous_response_id", "tools", "tool_choice"}
)
"""Members of a body that are converted."""

NEEDS_STATE = ("conversation", "prompt", "background")
"""Members that need state on the server."""
REPEATED = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id", "reasoning",
    "temperature", "text", "tool_choice", "tools", "top_p", "truncation", "user",
)  # fmt: skip
"""Members of a request that its response repeats."""
ANSWER_MEMBERS = ("id", "status", "error", "incomplete_details", "detail", "output", "usage")
"""Members of a response that hold the answer; the others repeat the request."""
USAGE = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
"""Chat's token count, which is added → Responses'."""


class Responses(Translatable):
    name = "responses"
    history = "input"
    fields = ("input", "prompt", "previous_response_id", "conversation", "instructions")

    def read(self, body: Json) -> ChatRequest:
        messages, origins = _input(body)
        params = {key: param for key, param in body.items() if key not in CONVERTED_MEMBERS} | _tools(body)
        if isinstance(body.get("max_output_tokens"), int):
            params["max_completion_tokens"] = body["max_output_tokens"]
        instructions = body.get("instructions")
        if isinstance(instructions, str) and instructions:
            messages.insert(0, {"role": "system", "content": instructions})
            origins.insert(0, (-1,))
            params["instructions"] = True
        elif "instructions" in body:
            params["instructions"] = False
        previous = body.get("previous_response_id")
        previous = previous if isinstance(previous, str) and previous else None
        after_command = previous is not None and previous.startswith(OUR_PREFIX)
        return ChatRequest(
            messages,
            model_of(body),
            wants_stream(body),
            params,
            tuple(origins),
            before_ours(OUR_PREFIX, previous) if previous and after_command else previous,
            after_command,
            remote_context=_id_of(body.get("conversation")) or _id_of(body.get("prompt")),
        )

    def without(self, body: Json, request: ChatRequest, cut: Set[int]) -> Json:
        shorter_body = dict(body)
        if cut:
            shorter_body["input"] = without_items(body["input"], request, cut)
        if request.after_command:
            del shorter_body["previous_response_id"]
            shorter_body |= {"previous_response_id": request.previous} if request.previous else {}
        return shorter_body

    def with_system(self, body: Json, text: str) -> Json | None:
        instructions = body.get("instructions") or ""
        if not isinstance(instructions, str):
            return None
        return {**body, "instructions": with_text(instructions, text)}

    def _reply(self, body: bytes, content_type: str) -> Reply:
        return _streamed(body) if is_streamed(body, content_type) else _whole(body)

    def as_chat(self, body: Json, request: ChatRequest) -> Json:
        """Leaves out tools that OpenAI's servers run, encrypted reasoning, storage settings, metadata."""
        for name in NEEDS_STATE:
            if body.get(name):
                raise InvalidRequest(
                    f"{name} needs an upstream that speaks Responses: this one only speaks chat completions",
                    param=name,
                )
        effort = body["reasoning"].get("effort") if isinstance(body.get("reasoning"), dict) else None
        return ask(
            request,
            [_message(message) for message in request.messages],
            tools=[_function(tool, space) for tool, space in _run_tools(_tools_of(request.params))],
            tool_choice=_choice(body.get("tool_choice")),
            max_tokens=body.get("max_output_tokens"),
            reasoning_effort=effort,
            response_format=_format(body),
        )

    def writer(self, body: Json, completion_id: str, model: str) -> ResponseWriter:
        repeated = {name: body[name] for name in REPEATED if body.get(name) is not None}
        head = begun(f"resp_{completion_id.partition('_')[2]}", model, body.get("previous_response_id"))
        return ResponseWriter(head | repeated, completion_id, _renamed(body))

    def answer(self, text: str, request: ChatRequest, completion_id: str, model: str) -> LocalAnswer:
        head = begun(our_id(OUR_PREFIX, completion_id, request.previous), model, request.previous)
        writer = ResponseWriter(head, completion_id.replace("_", f"_{COMMAND_PREFIX}", 1))
        return local_answer(writer, text, stream=request.stream)

    def error(self, error: BurnishError) -> Json:
        return error.envelope()

    def error_of(self, status: int, words: str) -> Json:
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        return {"error": {"message": words, "type": kind, "param": None, "code": None}}


def _input(body: Json) -> ReadItems:
    items = body.get("input")
    if items is None:  # the upstream may keep the prompt
        return ReadItems([], [])
    if isinstance(items, str):
        return ReadItems([{"role": "user", "content": items}], [(-1,)])
    if not isinstance(items, list):
        raise wrong_type("input", "a string or a list of items", items)
    return read_items(items)


def _id_of(reference: Any) -> str | None:
    """Return the id in a reference to something that the upstream keeps."""
    name = reference.get("id") if isinstance(reference, dict) else reference
    return name if isinstance(name, str) and name else None


def _tools(body: Json) -> Json:
    """Return functions in chat's form; tools that chat lacks as ``other_tools``, and their places in the list."""
    params: Json = {}
    tools, choice = body.get("tools"), body.get("tool_choice")
    for at, tool in enumerate(tools if isinstance(tools, list) else []):
        if isinstance(tool, dict) and tool.get("type") == "function":
            function = {key: field for key, field in tool.items() if key != "type"}
            params.setdefault("tools", []).append({"type": "function", "function": function})
        else:
            params.setdefault("other_tools", []).append(tool)
            params.setdefault("other_tools_at", []).append(at)
    if isinstance(choice, dict) and choice.get("type") == "function":
        params["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif choice is not None:
        params["tool_choice" if isinstance(choice, str) else "other_tool_choice"] = choice
    return params


def _streamed(body: bytes) -> Reply:
    answer = streamed(body)
    reply = _reply(answer.response, complete=answer.complete, error=answer.error)
    names = tuple(dict.fromkeys((*reply.items, *streamed_names(body))))
    # Some servers give an item other ids in its events than at the end.
    return replace(reply, readable=answer.damage is None, items=names)


def _whole(body: bytes) -> Reply:
    response = object_in(body)
    if response is None:
        return unread(body)
    failed = "output" not in response and error_in(response)
    return _reply(response, complete=True, error=as_text(body) if failed else None)


def _reply(response: Json, *, complete: bool, error: str | None) -> Reply:
    response = storable({key: response[key] for key in ANSWER_MEMBERS if key in response})
    items = [
        {"role": "assistant", **item} if item.get("type") == "message" else item
        for item in objects(response.get("output"))
    ]
    messages = messages_of(items).messages
    message = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    error = error or error_in(response) or failure(response.get("status"))
    complete = complete and error is None
    finish_reason = _finish_reason(response, message) if complete else None
    # Results of the server's tools and log-probabilities don't fit into a message.
    parts = (part for item in items for part in objects(item.get("content")))
    rich = len(messages) > 1 or any(part.get("logprobs") for part in parts)
    response_id, usage = response.get("id"), response.get("usage")
    if isinstance(usage, dict):
        usage = usage | {chat: usage[own] for chat, own in USAGE.items() if own in usage}
    return Reply(
        message=message,
        finish_reason=finish_reason,
        response_id=response_id if isinstance(response_id, str) and response_id else None,
        usage=usage if isinstance(usage, dict) else None,
        choices=({"index": 0, "finish_reason": finish_reason, "output": items},) if rich else (),
        complete=complete,
        error=error,
        items=tuple(item["id"] for item in items if isinstance(item.get("id"), str)),
    )


def _finish_reason(response: Json, message: Json | None) -> str | None:
    """Return chat's finish reason; None if the response continues in the background."""
    if response.get("status", "completed") == "completed":
        return "tool_calls" if message and message.get("tool_calls") else "stop"
    if response["status"] != "incomplete":
        return None
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return reason_of(reason) or "length"


# -- as chat asks it ---------------------------------------------------------------------------------------------------


def _renamed(body: Json) -> dict[str, Tool]:
    """Return the tools that the model knows by another name or kind, by the model's name."""
    tools = {
        _name(tool, space): Tool(tool["name"], space, tool["type"] == "custom")
        for tool, space in _run_tools(body.get("tools"))
    }
    return {name: tool for name, tool in tools.items() if tool != Tool(name)}


def _tools_of(params: Json) -> list[Any]:
    """Return the tools of a request as they were sent; ``params``: as ``_tools`` returns them."""
    tools = [{"type": "function", **tool["function"]} for tool in objects(params.get("tools"))]
    others = params.get("other_tools", ())
    places = params.get("other_tools_at", range(len(tools), len(tools) + len(others)))
    for at, tool in zip(places, others, strict=False):
        tools.insert(at, tool)
    return tools


def _run_tools(tools: Any) -> Iterator[tuple[Json, str | None]]:
    """Return the tools that the client runs, with their namespaces."""
    for tool in objects(tools):
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
