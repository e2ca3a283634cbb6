"""What owners may do from the chat: ``/rl train``, ``rollback``, ``on`` and ``off``."""

from __future__ import annotations

from collections.abc import Mapping

from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.registry import version_label
from burnish.proxy.feedback.answering import Action
from burnish.proxy.learner.learner import Learner


def actions(learner: Learner, owner: str) -> Mapping[str, Action]:
    """Return what carries out each command by its name, for one of the owners. Raises as the learner does."""

    async def train(_: str) -> str:
        return f"training has begun ({await learner.train_now()}); /rl status says how it goes"

    async def rollback(to: str) -> str:
        number = BASE_VERSION if to == "base" else int(to.removeprefix("v")) if to else None
        return f"{version_label(await learner.rollback(number, f'rolled back in the chat by {owner}'))} is live again"

    async def go_on(_: str) -> str:
        await learner.pause(on=False)
        return "it learns again by itself"

    async def stop(_: str) -> str:
        await learner.pause(on=True)
        return "it trains no more by itself, until /rl on; ratings are kept, and what is live stays"

    return {"train": train, "rollback": rollback, "on": go_on, "off": stop}
