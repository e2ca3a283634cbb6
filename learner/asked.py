"""What an engine's chat template got for a logged request. The log holds what the client sent, as chat messages.

For a translated request this is what the translator makes of it. llama.cpp converts Messages and Responses itself, and
normalises chat (tools/server/server-chat.cpp and common/chat.cpp); other engines' own conversions aren't known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from burnish.adapters.hosts.detect import Kind
from burnish.gate.replies import is_text, text_of
from burnish.proxy.http.errors import BurnishError
from burnish.proxy.records import Completion
from burnish.proxy.surfaces import SURFACES, Translatable
from burnish.proxy.surfaces.base import ChatRequest
from burnish.proxy.surfaces.chat import Chat
from burnish.proxy.surfaces.lenient import objects
from burnish.training.job import CONTINUED, SYSTEM_MERGED

Message = dict[str, Any]
CHAT = Chat()

TEMPLATE = "template"
"""The parameter of a completion as asked that holds the arguments of the chat template."""
PLAIN_PROMPT = "{{ messages[0]['content'] }}"
"""The chat template of a text completion."""
FIXED = (
    "messages",
    "conversation",
    "tools",
    "tokenize",
    "add_generation_prompt",
    "chat_template",
    CONTINUED,
    SYSTEM_MERGED,
)
"""Arguments that no request may set for the template."""
CHANGING = re.compile(r"(cch=).{5}(?=;)")
"""The part of Claude Code's billing line that llama.cpp makes the same in all requests."""


def as_asked(completion: Completion, engine: Kind) -> Completion:
    """Return a completion whose messages, tools and calls are the template's, and whose TEMPLATE are its arguments."""
    params = completion.params
    with suppress(BurnishError, LookupError, TypeError, AttributeError):  # imported records may be anything
        completion = _translated(completion) if completion.served.in_chat else completion
        if engine == "llamacpp":
            completion = _as_llamacpp(completion, native=not completion.served.in_chat)
    template = _template(completion, engine)
    if completion.asked.surface == "completions" and len(completion.messages) == 1:
        template = {"chat_template": PLAIN_PROMPT}
    return completion._replace(params={**params, **completion.params, TEMPLATE: template})


def instructed(completion: Completion) -> Completion | None:
    """Return a completion with the instructions that burnish added; None if the log can't say how they were joined."""
    text, messages, params = completion.instructions, list(completion.messages), completion.params
    if text is None:
        return completion
    surface, first = completion.asked.surface, messages[0] if messages else {}
    if surface == "responses" and params.get("instructions") is not True:
        head = {"role": "system", "content": text}
        return completion._replace(messages=(head, *messages), params={**params, "instructions": True})
    # A single block is logged as a text.
    if (
        surface in ("messages", "gemini")
        and isinstance(first.get("content"), str)
        and first["role"] == "system"
    ):
        return None
    changed = CHAT.with_system({"messages": messages}, text)
    return completion._replace(messages=tuple(changed["messages"])) if changed else None


def _translated(completion: Completion) -> Completion:
    surface = SURFACES[completion.asked.surface]
    if not isinstance(surface, Translatable):
        return completion
    params, reply = completion.params, completion.reply
    called = reply is not None and bool(reply.get("tool_calls"))
    history = [*completion.messages, *([reply] if reply and called else [])]
    chat = surface.as_chat(params, ChatRequest(history, params=params))
    messages = chat.pop("messages")
    if reply and called:
        reply = {**reply, "tool_calls": messages.pop()["tool_calls"]}
    members = {name: chat.get(name) for name in ("tools", "chat_template_kwargs", "reasoning_effort")}
    return completion._replace(messages=tuple(messages), reply=reply, params={**params, **members})


def _template(completion: Completion, engine: Kind) -> dict[str, Any]:
    params, messages = completion.params, completion.messages
    given = params.get("chat_template_kwargs")
    arguments = {
        name: value for name, value in (given if isinstance(given, dict) else {}).items() if name not in FIXED
    }
    continued = bool(messages) and messages[-1].get("role") == "assistant"
    if engine == "llamacpp":
        return {
            "enable_thinking": True,
            SYSTEM_MERGED: True,
            **arguments,
            **({CONTINUED: True} if continued else {}),
        }
    if effort := params.get("reasoning_effort"):
        arguments = {"reasoning_effort": effort, **arguments}
    return arguments | ({CONTINUED: True} if continued and params.get(CONTINUED) is True else {})


# -- llama.cpp ---------------------------------------------------------------------------------------------------------


def _as_llamacpp(completion: Completion, *, native: bool) -> Completion:
    messages, params = list(completion.messages), completion.params
    format_of = completion.asked.surface if native else "chat"
    if format_of == "messages":
        messages = list(_anthropic(messages, params))
    elif format_of == "responses" and params.get("instructions") is False:
        messages.insert(0, {"role": "system", "content": ""})
    if messages and messages[-1].get("role") == "assistant":
        messages[-1] = {**messages[-1], "content": "\n\n".join(_texts(messages[-1]))}
    tools = [_tool(tool) for tool in objects(params.get("tools"))]
    return completion._replace(messages=tuple(messages), params={**params, "tools": tools})


def _tool(tool: Message) -> Message:
    """Return a tool with the members that llama.cpp gives to the template."""
    function = tool.get("function", tool)
    described = {
        "name": function.get("name") or "",
        "description": function.get("description") or "",
        "parameters": function.get("parameters") or {},
    }
    return {"type": "function", "function": described}


def _anthropic(messages: Sequence[Message], params: Mapping[str, Any]) -> Iterator[Message]:
    """Join system blocks without a space; put the texts of an item before its results; leave out what isn't text."""
    system = "".join(_texts(messages[0])) if messages and messages[0].get("role") == "system" else None
    if system is not None or "system" in params:
        billing = CHANGING.sub(r"\1fffff", str(params.get("billing", "")))
        yield {"role": "system", "content": billing + (system or "")}
    rest = messages if system is None else messages[1:]
    for answered, messages_of in groupby(rest, key=lambda message: message.get("role") == "assistant"):
        turn = list(messages_of)
        yield from turn if answered else _item(turn)


def _item(turn: Sequence[Message]) -> Iterator[Message]:
    for message in turn:
        if message.get("role") != "tool":
            yield _shown(message)
    for message in turn:
        if message.get("role") == "tool":
            shown = _shown(message)
            texts = isinstance(shown["content"], list) and all(map(is_text, shown["content"]))
            yield {**shown, "content": "".join(_texts(shown))} if texts else shown


def _shown(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [part for part in content if is_text(part) and part.get("type") == "text"]
    images = [part for part in objects(content) if part.get("type") == "image_url"]
    return {**message, "content": [*parts, *images]}


def _texts(message: Message) -> list[str]:
    content = message.get("content")
    if isinstance(content, list):
        return [part["text"] for part in content if is_text(part)]
    return [text_of(message)]
