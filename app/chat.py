"""``/rl`` in a chat: carries a command out, and returns the text that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.registry import version_label
from burnish.learner.learner import Learner
from burnish.learner.routes import StartOver
from burnish.parts.core import Core
from burnish.proxy.access.access import Identity, may_steer_in_chat
from burnish.proxy.feedback import answer_command
from burnish.proxy.feedback.answering import ACTION_HELP, Action
from burnish.proxy.rl.commands import CommandRequest


@dataclass(frozen=True, slots=True)
class ChatAnswers:
    core: Core
    start_over: StartOver

    async def answer(self, request: CommandRequest) -> str:
        core = self.core

        async def status() -> str:
            live = core.engine.live() if core.engine else None
            added = await core.instructions.status(request.caller, core.live())
            return summary(await core.log.counts(), live, core.learner_status(), added)

        return await answer_command(
            request,
            core.log,
            rules=core.rules,
            status=status,
            on_feedback=core.on_feedback,
            actions=self._actions(request.identity, request.caller),
        )

    def _actions(self, identity: Identity, caller: str) -> Mapping[str, Action]:
        """Return what a caller may do by ``/rl``, besides rating."""
        core = self.core
        if not may_steer_in_chat(identity, caller, core.config.owners):
            return {}
        if core.learning:
            return chat_actions(core.learning.learner, self.start_over, caller)

        async def refuse(_: str) -> str:
            return core.why_not

        return dict.fromkeys(ACTION_HELP, refuse)


def chat_actions(learner: Learner, start_over: StartOver, owner: str) -> Mapping[str, Action]:
    """Return the actions of owners in the chat, by ``/rl`` command. They raise what the learner raises."""

    async def train(_: str) -> str:
        warnings = await learner.warnings()
        started = f"training has started ({await learner.train_now()}); /rl status shows how it goes"
        return ". ".join([started, *(f"But {warning}" for warning in warnings)])

    async def promote(number: str) -> str:
        version = int(number.removeprefix("v")) if number else None
        return (await learner.promote(version, f"promoted in the chat by {owner}")).in_words()

    async def rollback(to: str) -> str:
        number = BASE_VERSION if to == "base" else int(to.removeprefix("v")) if to else None
        return f"{version_label(await learner.rollback(number, f'rolled back in the chat by {owner}'))} is live again"

    async def reset(answer: str) -> str:
        if answer != "yes":
            return (
                "this makes the base model live and takes back everybody's ratings; the log is copied first. "
                "To do it: /rl reset yes"
            )
        outcome = await start_over(f"reset in the chat by {owner}")
        return (
            f"learning starts over: the base model is live, {outcome.ratings} ratings no longer count. "
            f"The log from before is in {outcome.backup}"
        )

    async def go_on(_: str) -> str:
        await learner.pause(on=False)
        return "training starts by itself again"

    async def off(_: str) -> str:
        await learner.pause(on=True)
        return (
            "training no longer starts by itself, until /rl on; ratings are kept, and the live version stays"
        )

    return {"train": train, "promote": promote, "rollback": rollback, "reset": reset, "on": go_on, "off": off}


def summary(
    counts: dict[str, int], live: dict[str, Any] | None, learner: dict[str, Any], instructions: dict[str, Any]
) -> str:
    """Return one line for ``/rl status``."""
    added = ""
    if instructions["on"]:
        added = f"; {instructions['count']} of your instructions are in the system prompt"
    rated = f"{counts['ratings']} answers rated ({counts['good']} good, {counts['bad']} bad)"
    served = f"; live version: {live['name']}" if live else ""
    if waits := learner.get("waiting"):
        served += f"; v{waits['version']} waits for /rl promote ({waits['reason'].removesuffix('.')})"
    return f"{rated}{served}; training: {learner['state']} – {learner['reason']}{added}"
