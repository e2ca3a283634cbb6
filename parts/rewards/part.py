"""Reward models as a part, with its routes: one learnt from ratings, or a third party's; the best of N answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from burnish.adapters.hosts.fetch import cache_dir
from burnish.config.config import Config
from burnish.parts.core import Core
from burnish.parts.hooks import Part
from burnish.parts.rewards.best_of import BestOf
from burnish.parts.rewards.rewards import Rewards, Source
from burnish.proxy.described import described, flat, list_of
from burnish.proxy.json_http import json_response
from burnish.proxy.log import Log
from burnish.proxy.log.batch import Stored
from burnish.proxy.relay.steps import Step
from burnish.system.threads import cores
from burnish.training.rewards.job import RewardJob


class RewardModels(Part):
    name = "rewards"
    foreign = False

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
    ratings = partial(core.log.ratings, core.rules)
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


_FORM = flat(
    "RewardForm",
    name=str,
    order=float | None,
    lower=float | None,
    upper=float | None,
    believed=bool,
    chosen=bool,
    reason=str | None,
)
REWARD_MODEL = flat(
    "RewardModel",
    object=Literal["reward_model"],
    id=str | None,
    on=bool,
    on_since=float | None,
    learning=bool,
    fault=str | None,
    reason=str | None,
    scored=int,
    unscored=int,
    form=str | None,
    made_at=float | None,
    objective=str | None,
    learnt_from=dict[str, Any] | None,
    forms=list_of(_FORM) | None,
)


def reward_routes(rewards: Rewards) -> list[Route]:
    @described(
        "the [reward model](rewards.md): its form, how well each form ordered unseen ratings, and if it is on",
        REWARD_MODEL,
    )
    async def show(request: Request) -> Response:
        return json_response(rewards.shown())

    @described(
        "learn a reward model from all ratings; `learning` of the answer ends when it is done",
        REWARD_MODEL,
        statuses=(202,),
    )
    async def train(request: Request) -> Response:
        await rewards.learn()
        return json_response(rewards.shown(), 202)

    @described("turn the reward model on (`/on`) or off (`/off`)", REWARD_MODEL)
    async def switch(request: Request) -> Response:
        await rewards.switch(on=request.url.path.endswith("/on"))
        return json_response(rewards.shown())

    return [
        Route("/burnish/reward", show, methods=["GET"]),
        Route("/burnish/reward/train", train, methods=["POST"]),
        Route("/burnish/reward/on", switch, methods=["POST"]),
        Route("/burnish/reward/off", switch, methods=["POST"]),
    ]
