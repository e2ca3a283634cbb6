"""The reward model of one burnish: which one scores, and learning one from the ratings."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from burnish.adapters.errors import UnreadableRewardModel
from burnish.gate.rewards import Ensemble, PlainReply
from burnish.learner.trainer import run_step
from burnish.parts.rewards.replies import ScorableReply, Scored, latest, lines, question
from burnish.parts.rewards.scorer import Active, Scorer
from burnish.parts.rewards.store import NO_MODEL, PREFIX, TRAIN, Store, StoredModel
from burnish.parts.rewards.third_party import ForeignModel
from burnish.proxy.http.errors import Conflict, Unavailable
from burnish.proxy.ids import reward_model_id
from burnish.proxy.log import Log, Rating
from burnish.training.errors import TrainingError
from burnish.training.job import JobDirectory
from burnish.training.rewards.job import MODEL, RewardJob, write_reward_job

logger = logging.getLogger(__name__)

UNKNOWN: dict[str, Any] = dict.fromkeys(("form", "made_at", "objective", "learnt_from", "forms"))


@dataclass
class Source:
    ratings: Callable[[], Awaitable[list[Rating]]]
    job: RewardJob


class Rewards:
    """Raises from its coroutines: Conflict, Unavailable."""

    def __init__(
        self, log: Log, data_dir: Path, on_rewarded: Callable[[Collection[str]], None], foreign: str | None
    ) -> None:
        """``foreign``: the name of a third party's model, which scores instead of one that burnish learns."""
        self._log = log
        self._store = Store(data_dir / "rewards")
        self._jobs = data_dir / "jobs"
        self._scorer = Scorer(log, self._active, on_rewarded)
        self._foreign = ForeignModel(foreign, data_dir / "reward-model.log") if foreign else None
        self._started_at = time.time()
        self._model: StoredModel | None = None
        self._fault: str | None = None
        """Why the latest model, or the last attempt to learn one, failed."""
        self._learning: asyncio.Task[None] | None = None
        self.source: Source | None = None
        """Replaced when the engine is found."""

    async def start(self) -> None:
        """Read the latest model, and begin to follow the log."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._clear_jobs)
        try:
            self._model = await asyncio.to_thread(self._store.latest)
        except UnreadableRewardModel as error:
            self._fault = str(error)
            logger.warning("answers get no rewards: %s", error)
        self._following = self._loop.create_task(self._scorer.follower.run())

    async def stop(self) -> None:
        for task in filter(None, (self._following, self._learning)):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._foreign:
            await self._foreign.close()

    def stored(self) -> None:
        """Called when completions were stored, from the log's thread."""
        if self._foreign or (self._model and self._model.on_since):
            self._scorer.follower.wake()

    @property
    def _why_off(self) -> str | None:
        return self._model.why_off if self._model else NO_MODEL

    # -- scoring -------------------------------------------------------------------------------------------------------

    async def score(self, messages: Sequence[dict[str, Any]], replies: Sequence[ScorableReply]) -> Scored:
        active = self._active()
        if active is None:
            why = (self._foreign and self._foreign.refused) or self._fault or self._why_off
            raise Conflict(f"no reward model could choose: {why}", code="no_reward_model")
        return await active.score(messages, replies)

    def _active(self) -> Active | None:
        if foreign := self._foreign:
            if foreign.refused:
                return None
            return Active(_foreign_id(foreign), self._started_at, reads_context=True, ask=foreign.score)
        model = self._model
        if model is None or model.on_since is None:
            return None
        return Active(model.id, model.on_since, reads_context=False, ask=partial(_ask, model.ensemble))

    # -- learning ------------------------------------------------------------------------------------------------------

    async def learn(self) -> None:
        """Begin to learn a model from the ratings. If it is believed, it is on when ``shown`` says that it is done."""
        self._check_own()
        if self._learning:
            raise Conflict(
                "a reward model is being learnt already: `burnish reward show` says when it is done"
            )
        if self.source is None:
            raise Unavailable("burnish is starting: try again in a moment")
        source = self.source
        self._learning = self._loop.create_task(self._learn(reward_model_id(), source))
        self._learning.add_done_callback(self._learnt)

    def _learnt(self, task: asyncio.Task[None]) -> None:
        self._learning = None
        if not task.cancelled() and (error := task.exception()):
            self._fault = f"no reward model was learnt: {error}"
            logger.error("%s", self._fault, exc_info=error)

    async def _learn(self, name: str, source: Source) -> None:
        path = self._jobs / name
        try:
            ratings, left_out = latest(await source.ratings())
            job_lines = await self._log.rated(ratings, lines)
            job = source.job.model_copy(update={"left_out": left_out})
            await asyncio.to_thread(write_reward_job, path, job, job_lines)
            await run_step("reward", JobDirectory(path))
            self._model = model = await asyncio.to_thread(self._store.install, path / MODEL, name)
            self._fault = None
            self._scorer.follower.wake()
            logger.info("learnt a reward model of %s: %s", model.manifest.chosen, model.why_off or "it is on")
        except (TrainingError, OSError, UnreadableRewardModel, Unavailable) as error:
            self._fault = f"no reward model was learnt: {error}"
            logger.warning("%s", self._fault)
        finally:
            shutil.rmtree(path, ignore_errors=True)  # it quotes answers

    def _clear_jobs(self) -> None:
        """Delete the jobs that a killed burnish left."""
        for path in self._jobs.glob(f"{PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _check_own(self) -> None:
        if self._foreign:
            raise Conflict(
                f"the configuration names the reward model {self._foreign.name}: leave [reward] model out to use one "
                "that learns from your ratings",
                code="foreign_reward_model",
            )

    async def switch(self, *, on: bool) -> None:
        self._check_own()
        model = self._model
        if model is None:
            raise Conflict(self._fault or NO_MODEL, code="no_reward_model")
        if on and not model.manifest.order.believed:
            raise Conflict(
                f"the reward model stays off: {model.doubt}. Rate more answers, then run {TRAIN}",
                code="reward_model_not_believed",
            )
        if on is not (model.on_since is not None):
            self._model = await self._switched(model, on=on)

    async def reset(self) -> None:
        """Turn the model off, because the ratings that it learnt from don't count any more. Raises Unavailable."""
        if self._model and self._model.on_since:
            self._model = await self._switched(self._model, on=False)

    async def _switched(self, model: StoredModel, *, on: bool) -> StoredModel:
        try:
            switched = await asyncio.to_thread(self._store.switch, model, on=on)
        except OSError as error:
            raise Unavailable(
                f"the folder of reward models can't be written: {error.strerror or error}"
            ) from error
        self._scorer.follower.wake()
        return switched

    # -- showing -------------------------------------------------------------------------------------------------------

    def shown(self) -> dict[str, Any]:
        active, model = self._active(), self._model
        facts = UNKNOWN | {
            "object": "reward_model",
            "id": active.id if active else model and model.id,
            "on": active is not None,
            "on_since": active and active.since,
            "learning": self._learning is not None,
            "scored": self._scorer.scored,
            "unscored": self._scorer.unscored,
            "fault": self._fault,
            "reason": self._why_off,
        }
        if foreign := self._foreign:
            foreign_facts = {"form": "a foreign model", "fault": foreign.refused, "reason": None}
            return facts | foreign_facts | {"id": _foreign_id(foreign)}
        return facts | (model.json() if model else {})


def _foreign_id(foreign: ForeignModel) -> str:
    return f"foreign:{foreign.name}"


async def _ask(
    model: Ensemble, messages: Sequence[dict[str, Any]], replies: Sequence[ScorableReply]
) -> list[float]:
    prompt = question(messages)
    scores = await asyncio.to_thread(model.scores, [PlainReply(prompt, *reply) for reply in replies])
    return list(map(float, scores))
