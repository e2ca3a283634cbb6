"""Reward models as a part: one that is learnt from ratings, or somebody else's; and the best of N answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import ClassVar

from starlette.routing import BaseRoute

from burnish.adapters.hosts.fetch import cache_dir
from burnish.config.config import Config
from burnish.parts.core import Core
from burnish.parts.hooks import Part
from burnish.parts.rewards.best_of import BestOf
from burnish.parts.rewards.rewards import Rewards, Source
from burnish.parts.rewards.routes import reward_routes
from burnish.proxy.log import Log
from burnish.proxy.log.batch import Stored
from burnish.proxy.relay.steps import Step
from burnish.system.threads import cores
from burnish.training.reward_job import RewardJob


class RewardModels(Part):
    name: ClassVar[str] = "rewards"
    foreign: ClassVar[bool] = False

    def __init__(self, log: Log, config: Config, on_rewarded: Callable[[Collection[str]], None]) -> None:
        self._rewards = Rewards(log, config.data_dir, on_rewarded, config.reward.model)

    async def start(self) -> None:
        await self._rewards.start()

    async def stop(self) -> None:
        await self._rewards.stop()

    async def use(self, core: Core) -> None:
        self._rewards.source = _source(core)

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        return reward_routes(self._rewards)

    def steps(self, core: Core) -> Sequence[Step]:
        return [BestOf(self._rewards.score, core.config.reward.best_of_max)]

    def stored(self, entry: Stored) -> None:
        self._rewards.stored()

    async def reset(self) -> None:
        await self._rewards.reset()


def _source(core: Core) -> Source:
    train, learning = core.config.train, core.learning
    ratings = partial(
        core.log.ratings,
        train.rater_weights,
        next_turns=train.next_turn,
        scrub=core.config.log.scrub,
        teachers=core.config.teachers,
    )
    settings = {"seed": train.seed, "threads": train.threads or max(1, cores() // 2)}
    if learning is None:
        return Source(ratings, RewardJob(why_no_base=core.why_not, **settings))
    job = RewardJob(
        base_weights=str(learning.weights.absolute()),
        base_digest=learning.base[1],
        weights_cache=str(cache_dir() / "weights"),
        **settings,
    )
    return Source(ratings, job)
