"""``/burnish/reward``."""

from __future__ import annotations

from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.parts.rewards.rewards import Rewards
from burnish.proxy.described import described, flat, list_of
from burnish.proxy.json_http import json_response

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
