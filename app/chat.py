"""``/rl`` in a chat: carries a command out, and returns the text that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from burnish.app.status import summary
from burnish.learner.reset import Outcome
from burnish.learner.routes import chat_actions
from burnish.parts.core import Core
from burnish.proxy.access.access import Identity, may_steer_in_chat
from burnish.proxy.feedback import Command, answer_command
from burnish.proxy.feedback.answering import ACTION_HELP, Action

StartOver = Callable[[str], Awaitable[Outcome]]
"""Starts learning over, for a reason. Raises Conflict, Unavailable."""


class ChatAnswers:
    def __init__(self, core: Core, start_over: StartOver) -> None:
        self._core = core
        self._start_over = start_over

    async def answer(
        self,
        command: Command,
        messages: list[dict[str, Any]] | None,
        *,
        caller: str,
        session: str | None,
        identity: Identity,
        previous: str | None = None,
    ) -> str:
        """Carry out a command; see ``commands.Answer``."""
        core = self._core

        async def status() -> str:
            live = core.engine.live() if core.engine else None
            added = await core.instructions.status(caller, core.live())
            return summary(await core.log.counts(), live, core.learner_status(), added)

        return await answer_command(
            command,
            messages,
            core.log,
            caller,
            session,
            identity=identity,
            previous=previous,
            rules=core.rules,
            status=status,
            on_feedback=core.on_feedback,
            actions=self._actions(identity, caller),
        )

    def _actions(self, identity: Identity, caller: str) -> Mapping[str, Action]:
        """Return what a caller may do by ``/rl``, besides rating."""
        core = self._core
        if not may_steer_in_chat(identity, caller, core.config.owners):
            return {}
        if core.learning:
            return chat_actions(core.learning.learner, self._start_over, caller)

        async def refuse(_: str) -> str:
            return core.why_not

        return dict.fromkeys(ACTION_HELP, refuse)
