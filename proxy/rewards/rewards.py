"""The reward model of one burnish: learns it when asked, and while it is on, scores each answer after it was stored.

Nothing waits for a score but best-of-N. A reader follows the log a moment behind the writer, so a fault of the model
costs scores and no answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.adapters.errors import UnreadableRewardModel
from burnish.adapters.rewards import MIN_RATED, Candidate
from burnish.proxy.errors import Conflict, Unavailable
from burnish.proxy.ids import reward_model_id
from burnish.proxy.learner.trainer import run_step
from burnish.proxy.log import Log
from burnish.proxy.records import Completion, RatedCompletion
from burnish.proxy.rewards.replies import asking, lines, written
from burnish.proxy.rewards.scores import Scored, Written
from burnish.proxy.rewards.shelf import PREFIX, Kept, Shelf
from burnish.training.errors import TrainingError
from burnish.training.job import JobDirectory
from burnish.training.reward_job import MODEL, RewardJob, write_reward_job

logger = logging.getLogger(__name__)

GATHER_S = 0.2
"""Answers that are stored within this time are scored together."""
ROWS = 100
"""Read at once."""
FAULT_PAUSE_S = 5.0
TRAIN = "`burnish reward train`"


@dataclass
class Source:
    """What a reward model is learnt from."""

    rated: Callable[[], Awaitable[list[RatedCompletion]]]
    job: RewardJob


@dataclass
class Rewards:
    """Raises from its coroutines: Conflict, Unavailable."""

    log: Log
    shelf: Shelf
    jobs: Path
    """Folder of the jobs."""
    on_rewarded: Callable[[Collection[str]], None]
    """Called with the IDs of completions that got a reward."""
    source: Source | None = None
    """Replaced when the engine is found."""
    _kept: Kept | None = None
    _fault: str | None = None
    """Why the latest model, or the last attempt to learn one, failed."""
    _scored: int = 0
    _unscored: int = 0
    _stored: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _learning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the latest model, and begin to follow the log."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._clear_jobs)
        try:
            self._kept = await asyncio.to_thread(self.shelf.latest)
        except UnreadableRewardModel as error:
            self._fault = str(error)
            logger.warning("answers get no rewards: %s", error)
        self._tasks.add(self._loop.create_task(self._follow()))

    async def stop(self) -> None:
        for task in (*self._tasks, *filter(None, (self._learning,))):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def stored(self) -> None:
        """Called when completions were stored, from the log's thread."""
        if self._kept and self._kept.on_since:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stored.set)

    # -- scoring -------------------------------------------------------------------------------------------------------

    async def score(self, prompt: str, replies: Sequence[Written]) -> Scored:
        return await self._score(self._on(), prompt, replies)

    def _on(self) -> Kept:
        kept = self._kept
        if kept is None:
            raise Conflict(
                f"there is no reward model that could choose: {self._fault or f'rate answers, then run {TRAIN}'}",
                code="no_reward_model",
            )
        if kept.on_since is None:
            raise Conflict(
                "the reward model is off: `burnish reward show` says how good it is, and `burnish reward on` "
                "turns it on",
                code="no_reward_model",
            )
        return kept

    async def _score(self, kept: Kept, prompt: str, replies: Sequence[Written]) -> Scored:
        candidates = [Candidate(*each) for each in replies]
        found = await asyncio.to_thread(kept.model.score, asking(prompt), candidates)
        return Scored(kept.id, [each if math.isfinite(each) else None for each in found])

    async def _follow(self) -> None:
        """Score what is stored, while a model is on."""
        upto: tuple[Kept | None, int] = (None, 0)
        while True:
            try:
                kept = self._kept
                if kept and kept.on_since:
                    if upto[0] is not kept:
                        upto = kept, await self.log.rewarded_upto(kept.id, kept.on_since)
                    upto = kept, await self._catch_up(kept, upto[1])
                await self._stored.wait()
                await asyncio.sleep(GATHER_S)
                self._stored.clear()
            except Unavailable:
                await asyncio.sleep(FAULT_PAUSE_S)
            except Exception:
                # A fault of one model must not end the rewards of the next.
                logger.exception("answers get no rewards for %g s", FAULT_PAUSE_S)
                await asyncio.sleep(FAULT_PAUSE_S)

    async def _catch_up(self, kept: Kept, after: int) -> int:
        """Score all that is stored behind a row; return the number of the last one. Raises Unavailable."""
        while True:
            self._stored.clear()
            upto, completions = await self.log.unrewarded(after, ROWS, full=False)
            rewards = [await self._reward(kept, each) for each in completions]
            found = [
                (each.id, reward)
                for each, reward in zip(completions, rewards, strict=True)
                if reward is not None
            ]
            if found:
                await self.log.set_rewards(kept.id, found)
                self.on_rewarded([name for name, _ in found])
            self._scored += len(found)
            self._unscored += len(completions) - len(found)
            if upto == after or self._kept is not kept:
                return upto
            after = upto

    async def _reward(self, kept: Kept, completion: Completion) -> float | None:
        reply = written(completion.reply or {}, completion.ended.finish_reason)
        return (await self._score(kept, completion.prompt, [reply])).rewards[0]

    # -- learning ------------------------------------------------------------------------------------------------------

    async def learn(self) -> None:
        """Begin to learn a model from all ratings. If it is believed, it is on when ``shown`` says that it is done."""
        if self._learning:
            raise Conflict(
                "a reward model is being learnt already: `burnish reward show` says when it is done"
            )
        if self.source is None:
            raise Unavailable("burnish is starting: try again in a moment")
        rated = await self.source.rated()
        name = reward_model_id()
        self._learning = asyncio.get_running_loop().create_task(self._learn(name, self.source.job, rated))
        self._learning.add_done_callback(self._learnt)

    def _learnt(self, task: asyncio.Task[None]) -> None:
        self._learning = None

    async def _learn(self, name: str, job: RewardJob, rated: Sequence[RatedCompletion]) -> None:
        path = self.jobs / name
        try:
            given, left_out = lines(rated)
            await asyncio.to_thread(
                write_reward_job, path, job.model_copy(update={"left_out": left_out}), given
            )
            await run_step("reward", JobDirectory(path))
            kept = await asyncio.to_thread(self.shelf.install, path / MODEL, name, on=False)
            self._kept = await self._switched(kept, on=kept.manifest.order.believed)
            self._fault, self._scored, self._unscored = None, 0, 0
            logger.info(
                "learnt a reward model of %s: %s",
                kept.manifest.chosen,
                "on" if self._kept.on_since else "off",
            )
        except (TrainingError, OSError, UnreadableRewardModel) as error:
            self._fault = f"no reward model was learnt: {error}"
            logger.warning("%s", self._fault)
        finally:
            shutil.rmtree(path, ignore_errors=True)  # it quotes answers

    def _clear_jobs(self) -> None:
        """Delete the jobs that a killed burnish left."""
        for path in self.jobs.glob(f"{PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)

    async def switch(self, *, on: bool) -> None:
        kept = self._kept
        if kept is None:
            raise Conflict(
                self._fault or f"there is no reward model yet: run {TRAIN}", code="no_reward_model"
            )
        if on and not kept.manifest.order.believed:
            raise Conflict(
                f"the reward model stays off: {_doubt(kept)}. Rate more answers, then run {TRAIN}",
                code="reward_model_not_believed",
            )
        if on is not (kept.on_since is not None):
            self._kept = await self._switched(kept, on=on)

    async def reset(self) -> None:
        """Turn the model off, because the ratings that it learnt from don't count any more. Raises Unavailable."""
        if self._kept and self._kept.on_since:
            self._kept = await self._switched(self._kept, on=False)

    async def _switched(self, kept: Kept, *, on: bool) -> Kept:
        try:
            switched = await asyncio.to_thread(self.shelf.switch, kept, on=on)
        except OSError as error:
            raise Unavailable(
                f"the folder of reward models can't be written: {error.strerror or error}"
            ) from error
        self._stored.set()
        return switched

    # -- showing -------------------------------------------------------------------------------------------------------

    def shown(self) -> dict[str, Any]:
        kept = self._kept
        return {
            "object": "reward_model",
            "id": kept and kept.id,
            "on": bool(kept and kept.on_since),
            "on_since": kept and kept.on_since,
            "learning": self._learning is not None,
            "fault": self._fault,
            "reason": self._reason(),
            "scored": self._scored,
            "unscored": self._unscored,
            **(_of_manifest(kept) if kept else dict.fromkeys(_MANIFEST)),
        }

    def _reason(self) -> str | None:
        """Return why no model is on, and what to do."""
        kept = self._kept
        if kept is None:
            rate = f"rate {MIN_RATED} answers or more, good ones and bad ones"
            return f"there is no reward model yet: {rate}, then run {TRAIN}"
        if kept.on_since:
            return None
        if kept.manifest.order.believed:
            return "it was turned off: `burnish reward on` turns it on"
        return f"{_doubt(kept)}: rate more answers, then run {TRAIN}"


_MANIFEST = ("form", "made_at", "objective", "learnt_from", "forms")


def _of_manifest(kept: Kept) -> dict[str, Any]:
    manifest = kept.manifest
    return {
        "form": manifest.chosen,
        "made_at": manifest.made_at,
        "objective": manifest.objective,
        "learnt_from": manifest.learnt_from.model_dump(),
        "forms": [
            {
                "name": each.name,
                "order": each.share,
                "lower": each.order and max(0.0, each.order.lower),
                "upper": each.order and each.order.upper,
                "believed": bool(each.order and each.order.believed),
                "chosen": each.name == manifest.chosen,
                "serves": each.serves,
                "reason": each.reason,
            }
            for each in manifest.tried
        ],
    }


def _doubt(kept: Kept) -> str:
    found = kept.manifest.order
    return (
        f"it puts {found.share:.0%} of good and bad answers that it hadn't seen in the right order (chance is 50%), "
        f"and by so few ratings that may be {found.lower:.0%}"
    )
