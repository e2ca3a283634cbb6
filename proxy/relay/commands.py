"""``/rl`` typed into a chat: the step that carries it out, and frees histories of it."""

from __future__ import annotations

from typing import ClassVar

from burnish.proxy.access.access import identity_of
from burnish.proxy.client_headers import SESSION_HEADERS, caller_of
from burnish.proxy.http.headers import first
from burnish.proxy.ids import completion_id
from burnish.proxy.relay.history import freed, may_have_traces
from burnish.proxy.relay.log import Log
from burnish.proxy.relay.steps import Exchange, Step
from burnish.proxy.rl.commands import CommandAnswer, CommandRequest, exchanges, find_command, may_be_command


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
            CommandRequest(command, request.messages, caller, session, identity, request.previous)
        )
        exchange.answer = surface.answer(text, request, completion_id(), request.model or "burnish")
