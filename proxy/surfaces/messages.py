"""Anthropic Messages: ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``.

A client that lets the server hold its history in a thread names the previous answer. Our answers to commands are in no
thread. As in Responses, their ids hold the id before.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from burnish.proxy.http.errors import BurnishError, InvalidRequest
from burnish.proxy.surfaces import messages_blocks
from burnish.proxy.surfaces.asking import ask, json_schema
from burnish.proxy.surfaces.base import (
    ChatRequest,
    Reply,
    Translatable,
    before_ours,
    check_role,
    model_of,
    objects_at,
    our_id,
    unread,
    wants_stream,
    with_text,
    wrong_type,
)
from burnish.proxy.surfaces.ends import failure, reason_of
from burnish.proxy.surfaces.lenient import Json, as_text, error_in, object_in, objects, storable
from burnish.proxy.surfaces.messages_stream import MessageMerger, MessageWriter
from burnish.proxy.surfaces.sse import JsonEvents, is_streamed
from burnish.proxy.surfaces.writing import LocalAnswer, local_answer

OUR_PREFIX = "msg_rl_"
"""Prefix of the ids of our answers to commands."""
THREAD_NOT_FOUND = "thread_not_found"
"""Anthropic's error code, on which its SDKs send the whole history again."""

PROMPT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Counts that add up to the prompt's tokens."""

ERROR_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
    529: "overloaded_error",
}
"""Other statuses are an ``invalid_request_error`` or an ``api_error``."""


class Messages(Translatable):
    name = "messages"
    history = "messages"
    fields = ("messages",)
    key_header = b"x-api-key"

    def read(self, body: Json) -> ChatRequest:
        items = _items(body)
        system = messages_blocks.system(_system(body))
        messages, origins = ([system], [-1]) if system else ([], [])
        for index, message in enumerate(items):
            own = messages_blocks.messages(message)
            messages += own
            origins += [index] * len(own)
        params = {key: param for key, param in body.items() if key not in ("messages", "model", "system")}
        params |= messages_blocks.billing(_system(body))
        if system is None and body.get("system") is not None:
            params["system"] = ""
        settings = messages_blocks.settings(params)
        previous, after_command = _previous(body.get("thread"))
        return ChatRequest(
            messages, model_of(body), wants_stream(body), settings, tuple(origins), previous, after_command
        )

    def without(self, body: Json, request: ChatRequest, cut: Set[int]) -> Json:
        """Keep the tool results of an item whose other messages are cut."""
        stays = iter([index not in cut for index, origin in enumerate(request.origins or ()) if origin != -1])
        messages = []
        for message in body["messages"]:
            turns = messages_blocks.turns(message)
            turns_left = [turn for turn in turns if next(stays)]
            if len(turns_left) == len(turns):
                messages.append(message)
            elif turns_left:
                messages.append({**message, "content": [block for turn in turns_left for block in turn]})
        thread = body.get("thread")
        if request.after_command:
            thread = {**body["thread"], "previous_message_id": request.previous}
        return {**body, "messages": messages or body["messages"]} | ({"thread": thread} if thread else {})

    def with_system(self, body: Json, text: str) -> Json | None:
        return {**body, "system": with_text(body.get("system") or "", text)}

    def _reply(self, body: bytes, content_type: str) -> Reply:
        return _streamed(body) if is_streamed(body, content_type) else _whole(body)

    def as_chat(self, body: Json, request: ChatRequest) -> Json:
        """Leaves out tools that Anthropic's servers run, thinking budgets, cache settings, metadata."""
        return ask(
            request,
            tools=[tool for tool in objects(request.params.get("tools")) if tool.get("type") == "function"],
            max_tokens=body.get("max_tokens"),
            response_format=_format(body),
        )

    def writer(self, body: Json, completion_id: str, model: str) -> MessageWriter:
        return MessageWriter(completion_id, model)

    def answer(self, text: str, request: ChatRequest, completion_id: str, model: str) -> LocalAnswer:
        writer = self.writer({}, completion_id, model)
        writer.whole["id"] = our_id(OUR_PREFIX, completion_id, request.previous)
        return local_answer(writer, text, stream=request.stream)

    def error(self, error: BurnishError) -> Json:
        body = super().error(error)
        if error.reason == THREAD_NOT_FOUND:
            body["error"]["details"] = {"error_code": error.reason}
        return body

    def error_of(self, status: int, words: str) -> Json:
        other = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        kind = ERROR_TYPES.get(status, other)
        return {"type": "error", "error": {"type": kind, "message": words}, "request_id": None}


def _previous(thread: Any) -> tuple[str | None, bool]:
    """Return the id of the answer that a request continues, and whether ours came between. Raises InvalidRequest."""
    message_id = thread.get("previous_message_id") if isinstance(thread, dict) else None
    if not isinstance(message_id, str) or thread.get("type") != "continue":
        return None, False
    if not message_id.startswith(OUR_PREFIX):
        return message_id, False
    if previous_id := before_ours(OUR_PREFIX, message_id):
        return previous_id, True
    raise InvalidRequest(
        f"No thread holds the message {message_id!r}, a command's answer: send the whole history.",
        param="thread",
        code=THREAD_NOT_FOUND,
    )


def _format(body: Json) -> Json | None:
    output_format: Any = body.get("output_config")
    output_format = (
        output_format.get("format") if isinstance(output_format, dict) else body.get("output_format")
    )
    if not isinstance(output_format, dict) or output_format.get("type") != "json_schema":
        return None
    return json_schema(output_format.get("schema"), strict=True)


def _items(body: Json) -> list[Json]:
    items = objects_at(body, "messages", "a list of messages", "an object with role and content")
    for index, message in enumerate(items):
        name = f"messages[{index}]"
        check_role(message, name)
        _check_content(message.get("content"), f"{name}.content")
    return items


def _system(body: Json) -> Any:
    system = body.get("system")
    if system is not None:
        _check_content(system, "system")
        for index, block in enumerate(system if isinstance(system, list) else ()):
            if block["type"] != "text":
                wrong = f"system[{index}].type"
                raise InvalidRequest(f'{wrong} must be "text", not {block["type"]!r}', param=wrong)
    return system


def _check_content(content: Any, name: str) -> None:
    """Raise InvalidRequest unless a content is a text or a list of typed blocks."""
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise wrong_type(name, "a string or a list of content blocks", content)
    for index, block in enumerate(content):
        wrong = f"{name}[{index}]"
        if not isinstance(block, dict):
            raise wrong_type(wrong, "an object with a type", block)
        if not isinstance(block.get("type"), str):
            raise InvalidRequest(f'{wrong}.type must be a string such as "text"', param=f"{wrong}.type")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise InvalidRequest(f"{wrong}.text must be a string", param=f"{wrong}.text")


def _whole(body: bytes) -> Reply:
    parsed = object_in(body)
    if parsed is None:
        return unread(body)
    if isinstance(parsed.get("content"), list | str):
        return _reply(parsed, complete=bool(parsed.get("stop_reason")))
    return Reply(error=as_text(body))


def _streamed(body: bytes) -> Reply:
    events, merger = JsonEvents(body), MessageMerger()
    for event, parsed in events:
        if event.name == "error":
            merger.error = parsed.get("error", parsed) if isinstance(parsed, dict) else event.data
        elif isinstance(parsed, dict):
            merger.take(parsed)
    error = error_in({"error": merger.error})
    message = merger.message()
    if message is None:
        readable = bool(error or merger.ended or not body)
        return Reply(error=error if readable else as_text(body), readable=readable)
    error = error or events.damage
    ended = merger.ended or bool(message.get("stop_reason"))
    return replace(_reply(message, complete=ended, error=error), readable=events.damage is None)


def _reply(message: Json, *, complete: bool, error: str | None = None) -> Reply:
    message = storable(message)
    finish_reason, response_id = reason_of(message.get("stop_reason")), message.get("id")
    if finish_reason == "stop" and message.get("stop_sequence"):
        finish_reason = "stop_sequence"  # llama.cpp says end_turn all the same
    error = error or failure(message.get("stop_reason"))
    return Reply(
        message=messages_blocks.reply(messages_blocks.blocks(message["content"])),
        finish_reason=finish_reason,
        response_id=response_id if isinstance(response_id, str) and response_id else None,
        usage=_usage(message.get("usage")),
        complete=complete and error is None,
        error=error,
    )


def _usage(usage: Any) -> Json | None:
    """Return the counts, with chat's names added."""
    if not isinstance(usage, dict) or not usage:
        return None
    counts = {name: count for name, count in usage.items() if type(count) is int}
    prompt_counts = [counts[name] for name in PROMPT_COUNTS if name in counts]
    prompt = {"prompt_tokens": sum(prompt_counts)} if prompt_counts else {}
    completion = {"completion_tokens": counts["output_tokens"]} if "output_tokens" in counts else {}
    return {**usage, **prompt, **completion}
