"""A reward model of somebody else's, which runs in a child process: torch never enters this one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from burnish.proxy.errors import Conflict, Unavailable
from burnish.proxy.messages import text_of
from burnish.proxy.relay.scoring import Written

START_LIMIT_S = 120.0
"""Importing torch and loading a model on a busy machine."""
SCORE_LIMIT_S = 60.0
LINE_BYTES = 16 * 1024 * 1024


class ForeignModel:
    """Starts the child when it is first asked, and again if it has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.refused: str | None = None
        """Why the model can't be used; it isn't tried again until burnish restarts."""
        self._child: asyncio.subprocess.Process | None = None
        self._asking = asyncio.Lock()

    async def score(self, messages: Sequence[dict[str, Any]], replies: Sequence[Written]) -> list[float]:
        """Raises Conflict if the model can't be used, Unavailable if it didn't answer."""
        texts = [{"role": str(each.get("role")), "content": text_of(each)} for each in messages]
        async with self._asking:
            child = await self._running()
            asked = {"messages": texts, "replies": [each.text for each in replies]}
            answer = await self._answer(child, json.dumps(asked).encode() + b"\n", SCORE_LIMIT_S)
        if "rewards" not in answer:
            raise Unavailable(f"the reward model {self.name} failed: {answer.get('error')}")
        return [float(each) for each in answer["rewards"]]

    async def close(self) -> None:
        child, self._child = self._child, None
        if child and child.returncode is None:
            child.kill()
            await child.wait()

    async def _running(self) -> asyncio.subprocess.Process:
        if self.refused:
            raise Conflict(self.refused, code="no_reward_model")
        if self._child and self._child.returncode is None:
            return self._child
        self._child = child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "burnish.training.reward_models.foreign", self.name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=LINE_BYTES,
        )
        answer = await self._answer(child, b"", START_LIMIT_S)
        if "ready" not in answer:
            self.refused = str(answer.get("error"))
            raise Conflict(self.refused, code="no_reward_model")
        return child

    async def _answer(
        self, child: asyncio.subprocess.Process, asked: bytes, limit_s: float
    ) -> dict[str, Any]:
        """Raises Unavailable, after which the child is gone."""
        assert child.stdin and child.stdout
        try:
            async with asyncio.timeout(limit_s):
                child.stdin.write(asked)
                await child.stdin.drain()
                return dict(json.loads(await child.stdout.readline()))
        except (TimeoutError, OSError, ValueError) as error:
            await self.close()
            raise Unavailable(
                f"the reward model {self.name} ended or takes longer than {limit_s:g} s"
            ) from error
        except asyncio.CancelledError:
            await self.close()  # its answer would be taken for that to the next request
            raise
