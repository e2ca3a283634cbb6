"""A third party's reward model in a child process, so torch never enters this one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish.parts.rewards.replies import ScorableReply
from burnish.proxy.http.errors import Conflict, Unavailable
from burnish.proxy.messages import text_of
from burnish.system.child import Child, ChildError

START_LIMIT_S = 120.0
"""Importing torch and loading a model on a busy machine."""
SCORE_LIMIT_S = 60.0


class ForeignModel:
    """Starts the child when it is first asked, and again if it has ended."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        self.refused: str | None = None
        """Why the model can't be used; it isn't tried again until burnish restarts."""
        self._child: Child | None = None
        self._asking = asyncio.Lock()

    async def score(
        self, messages: Sequence[dict[str, Any]], replies: Sequence[ScorableReply]
    ) -> list[float]:
        """Raises Conflict if the model can't be used, Unavailable if it didn't answer."""
        texts = [{"role": str(message.get("role")), "content": text_of(message)} for message in messages]
        async with self._asking:
            child = await self._running()
            request = {"messages": texts, "replies": [reply.text for reply in replies]}
            answer = await self._answer(child, request, SCORE_LIMIT_S)
        if "rewards" not in answer:
            raise Unavailable(f"the reward model {self.name} failed: {answer.get('error')}")
        return [float(reward) for reward in answer["rewards"]]

    async def close(self) -> None:
        if self._child:
            await self._child.end()

    async def _running(self) -> Child:
        if self.refused:
            raise Conflict(self.refused, code="no_reward_model")
        if self._child and self._child.alive:
            return self._child
        # -P: a folder named burnish in the working directory is not burnish.
        command = (sys.executable, "-P", "-m", "burnish.training.rewards.third_party", self.name)
        self._child = child = await Child.start(command, log=self._log, cwd=None)
        answer = await self._answer(child, None, START_LIMIT_S)
        if "ready" not in answer:
            self.refused = str(answer.get("error"))
            raise Conflict(self.refused, code="no_reward_model")
        return child

    async def _answer(self, child: Child, request: object, limit_s: float) -> dict[str, Any]:
        """Raises Unavailable, after which the child is gone."""
        try:
            return await child.ask(request, limit_s)
        except ChildError as error:
            raise Unavailable(f"the reward model {self.name} {error}") from error
