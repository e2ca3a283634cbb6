"""``/rl`` in a chat: the step that carries it out, and frees histories of its traces.

A client may leave some where the exchange isn't whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import orjson

from burnish.proxy.access.access import identity_of
from burnish.proxy.client_headers import SESSION_HEADERS, caller_of
from burnish.proxy.http.errors import InvalidRequest, Unavailable
from burnish.proxy.http.headers import Named, first
from burnish.proxy.ids import completion_id
from burnish.proxy.messages import SYSTEM_ROLES
from burnish.proxy.records import Completion, Passthrough
from burnish.proxy.relay.client import read_request
from burnish.proxy.relay.steps import Exchange, Step
from burnish.proxy.rl.commands import (
    CommandAnswer,
    CommandRequest,
    command_at,
    exchanges,
    find_command,
    may_be_command,
    unanswered,
    without_command,
)
from burnish.proxy.rl.own_words import PREFIX, without_own_words
from burnish.proxy.surfaces import ChatRequest, Surface
from burnish.proxy.surfaces.items import COMMAND_PREFIX
from burnish.proxy.surfaces.lenient import Json
from burnish.system.apart import LARGE_BYTES

OWN_WORDS, COMMAND = PREFIX.encode(), b"/rl"
"""What a body contains if its history may have such traces."""
RESPONSES, REFERENCE = "responses", COMMAND_PREFIX.encode()
"""The format that can name such an answer by its id only, and what the body contains then."""
MOST_LOOKUPS = 32
"""Commands of one history that are looked up in the log, latest first."""

Held = tuple[list[dict[str, Any]], dict[str, Any]]
"""The messages up to a response, and the response; and the parameters of its request."""


class Log(Protocol):
    """The log, as the relay sees it."""

    def capture(self, entry: Completion | Passthrough) -> None:
        """Take a record; returns at once."""

    async def rated_in_chat(self, messages: list[Json], caller: str, session: str | None) -> bool:
        """True if the caller rated the last answer of a history by ``/rl``."""

    async def held_up_to(self, name: str, caller: str, session: str | None) -> Held | None:
        """Return what came before, up to a response; None if the caller has no such response."""

    async def with_answers(self, messages: list[Json], caller: str) -> list[Json]:
        """Return messages with answers to the caller in the place of the names of their items."""

    async def complete_response(self, response_id: str, caller: str, body: bytes) -> bool:
        """Complete an answer that was made in the background. Raises Unavailable."""


class ChatCommands(Step):
    asked_for: ClassVar[bool] = True
    limit_s: ClassVar[float] = 600.0  # `/rl promote` loads a version

    def __init__(self, log: Log, answer: CommandAnswer) -> None:
        self._log = log
        self._answer = answer

    def concerns(self, exchange: Exchange) -> bool:
        messages = exchange.request.messages
        return may_be_command(messages) or may_have_traces(exchange.surface, messages, exchange.body)

    async def before_target(self, exchange: Exchange) -> None:
        surface, headers = exchange.surface, exchange.headers
        exchange.kept, request = await freed(
            surface, exchange.members, exchange.request, exchange.body, log=self._log, headers=headers
        )
        exchange.request = request
        command = find_command(request.messages)
        if command is None:
            exchange.cut |= exchanges(request.messages)
            return
        caller, session = caller_of(headers), first(headers, *SESSION_HEADERS)
        identity = identity_of(exchange.scope)
        text = await self._answer(
            CommandRequest(
                command, request.messages, caller, session, identity, request.previous, request.remote_context
            )
        )
        exchange.answer = surface.answer(text, request, completion_id(), request.model or "burnish")


def may_have_traces(surface: Surface, messages: Sequence[dict[str, Any]], body: bytes) -> bool:
    """Tell most histories from those with an answer of burnish's own, or with a command that lacks one."""
    if len(messages) > 1 and (OWN_WORDS in body or (_lacks_an_answer(messages) and COMMAND in body)):
        return True
    return surface.name == RESPONSES and REFERENCE in body


async def freed(
    surface: Surface, body: Json, request: ChatRequest, sent: bytes, *, log: Log, headers: Named
) -> tuple[Json, ChatRequest]:
    """Return a body and its request without answers of burnish's own beside the assistant's words.

    Also without commands whose answer a client dropped, if the log has their ratings. The same objects if there is
    nothing to remove. ``sent``: the bytes of the body.
    """
    items = body.get(surface.history) if OWN_WORDS in sent else None
    if isinstance(items, list) and (kept := without_own_words(items)) is not None:
        body = {**body, surface.history: kept}
        request = surface.read(body)
    lacking = COMMAND in sent and surface.history and _lacks_an_answer(request.messages)
    if lacking and (found := unanswered(request.messages)):
        caller = caller_of(headers), first(headers, *SESSION_HEADERS)
        if given := await _given(found[-MOST_LOOKUPS:], request.messages, log, *caller):
            body = surface.without(body, request, given)
            request = surface.read(body)
    return body, request


async def cleaned(surface: Surface, path: str, body: bytes, *, log: Log, headers: Named) -> bytes:
    """Return a body that counts or sums up a conversation, without ``/rl`` and burnish's own words.

    The same object if it has none of them, or can't be read, which the upstream judges.
    """
    if len(body) > LARGE_BYTES and COMMAND not in body and OWN_WORDS not in body:
        return body
    try:
        parsed, request = read_request(surface, path, body)
    except InvalidRequest:
        return body
    kept, request = await freed(surface, parsed, request, body, log=log, headers=headers)
    cut = exchanges(request.messages) | command_at(request.messages)
    if not cut and not request.after_command and kept is parsed:
        return body
    return orjson.dumps(surface.without(kept, request, cut))


def _lacks_an_answer(messages: Sequence[dict[str, Any]]) -> bool:
    """True if a user's message follows another: cheaper to see than whether one is a command."""
    before = None
    for message in messages:
        role = message.get("role")
        if role == before == "user":
            return True
        if role not in SYSTEM_ROLES:
            before = role
    return False


async def _given(
    found: Sequence[int], messages: list[dict[str, Any]], log: Log, caller: str, session: str | None
) -> set[int]:
    try:
        return {
            index
            for index in found
            if await log.rated_in_chat(without_command(messages[: index + 1]), caller, session)
        }
    except Unavailable:
        return set()  # an answer is worth more than a clean history
