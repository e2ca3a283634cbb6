"""The whole cycle, once for all tests: ratings start a training, and its judgement goes on after a restart."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.learning.questions import BRIEFLY, PROMPTS
from tests.learner.conftest import World, embedded

RATED = PROMPTS[:16]
Opinion = Callable[[int, str], bool]
"""Whether the user likes a reply, given its number and text."""


def every_second(number: int, _: str) -> bool:
    return number % 2 == 0


def conversation(question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": BRIEFLY}, {"role": "user", "content": question}]


async def rate_answers(world: World, questions: Sequence[str], likes: Opinion, max_tokens: int = 12) -> None:
    waiting = list(enumerate(questions))

    async def work() -> None:
        while waiting:
            number, question = waiting.pop()
            text, completion = await world.ask(
                conversation(question), max_tokens=max_tokens, temperature=0.8, top_p=0.95, seed=number
            )
            await world.rate(completion, 1.0 if likes(number, text) else -1.0)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work())


async def teach(folder: Path, model: Path, engine_state: Path) -> None:
    """Fill data directories with a version trained from ratings: ``trained``, and ``judged`` after an interruption."""
    trained, judged = folder / "trained", folder / "judged"
    settings = {"schedule": "auto", "min_ratings": 16, "min_good": 8, "min_bad": 4, "epochs": 2}
    async with embedded(trained, model, engine_state, **settings) as world:
        await rate_answers(world, RATED, every_second)
        counts = await world.log.counts()
        assert (counts["ratings"], counts["good"], counts["bad"]) == (16, 8, 8)
        run = await world.run_when(lambda _: True, 60)
        assert "16 new ratings" in run.reason, "it started by itself"
        assert world.learner.status()["state"] == "training"
        await world.run_when(lambda run: run.status == "evaluating", 200)
    shutil.copytree(trained, judged)
    async with embedded(judged, model, engine_state) as world:
        # The end of the first burnish left it as interrupted, until the second goes on.
        await world.run_when(lambda run: run.status != "interrupted" and run.ended_at is not None, 200)
