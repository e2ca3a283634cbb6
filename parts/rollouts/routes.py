"""``/v1/rollouts``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from burnish.parts.core import Core
from burnish.parts.rollouts.rollouts import Beginning, Count, Rollouts
from burnish.proxy.access.carried import key_of
from burnish.proxy.described import described, flat, list_of, listing, optional
from burnish.proxy.http.errors import Unprocessable
from burnish.proxy.json_http import Body, caller_of, json_response, page_limit, read_json, validated
from burnish.proxy.log import Log
from burnish.proxy.log.rollouts import Reward, Rollout, RolloutFilter

MAX_BODY_BYTES = 64 * 1024
MAX_REASON = 1000
"""Characters."""
MOST = 1e6
"""Larger rewards are errors of an environment."""
STATUSES = ("open", "ended", "timed_out")


class Rewarding(Body):
    """``POST /v1/rollouts/{id}/reward``."""

    value: Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
    step: Count | None = None
    """Which completion, counted from 0; None: the rollout as a whole."""
    reason: Annotated[str, StringConstraints(strict=True, max_length=MAX_REASON)] | None = None

    @field_validator("value", mode="before")
    @classmethod
    def _number(cls, number: object) -> object:
        """A truth value is an error more often than a reward."""
        if isinstance(number, bool | str):
            raise ValueError("a reward is a number, such as 1.0 or -0.5")
        return number


_REWARD = flat("Reward", value=float, step=int | None, reason=str | None, created_at=float)
_STEP = flat("Step", completion_id=str, continues=int | None)
ROLLOUT = flat(
    "Rollout",
    Rollout,
    without=frozenset({"caller", "steps", "rewards", "tags"}),
    object=Literal["rollout"],
    base_url=str,
    api_key=str,
    tags=dict[str, str],
    reward=float | None,
    rewards=list_of(_REWARD),
    completions=list[str],
    steps=list_of(_STEP),
    note=str | None,
    repeated=optional(bool),
)
_TOKENS = flat("KeptTokens", steps=int, missing=dict[str, int])
MANY = listing(ROLLOUT, "Rollouts", has_more=bool)


def rollout_routes(rollouts: Rollouts, log: Log) -> list[Route]:
    def shown(request: Request, rollout: Rollout) -> dict[str, Any]:
        return _shown(request, rollout, key_of(rollout.id, rollouts.proof(rollout.id)))

    @described(
        "begin a [rollout](agents-that-learn.md): an attempt of an agent at a task, with its own base URL and key",
        ROLLOUT,
        body=Beginning,
        statuses=(201,),
    )
    async def begin(request: Request) -> Response:
        body = validated(Beginning, await read_json(request, MAX_BODY_BYTES, untyped=True))
        return json_response(shown(request, await rollouts.begin(body, caller_of(request))), 201)

    @described(
        "reward a rollout, or one `step` of it; rewards add up. `repeated`: the same came before, and counts once",
        ROLLOUT,
        body=Rewarding,
    )
    async def reward(request: Request) -> Response:
        body = validated(Rewarding, await read_json(request, MAX_BODY_BYTES, untyped=True))
        reward = Reward(time.time(), body.value, None, body.reason)
        rollout, repeated = await log.reward_rollout(request.path_params["id"], reward, body.step)
        return json_response(shown(request, rollout) | {"repeated": repeated})

    @described("end a rollout: it takes no more requests and rewards", ROLLOUT)
    async def end(request: Request) -> Response:
        return json_response(shown(request, await rollouts.end(request.path_params["id"])))

    @described(
        "one rollout; `tokens` says of how many steps the token ids are kept, and why of others they aren't",
        flat("ShownRollout", ROLLOUT, tokens=_TOKENS, repeated=optional(bool)),
    )
    async def one(request: Request) -> Response:
        rollout = await log.rollout(request.path_params["id"])
        steps, missing = await log.kept_tokens([step.completion_id for step in rollout.steps])
        return json_response(shown(request, rollout) | {"tokens": {"steps": steps, "missing": missing}})

    @described(
        "rollouts, latest first; `after`: only those before this one",
        MANY,
        query=("limit", "task", "group", "status", "held_out", "after"),
    )
    async def index(request: Request) -> Response:
        limit = page_limit(request, *RolloutFilter._fields)
        matches = await log.rollouts(_filter(request), limit + 1)
        rows = [shown(request, rollout) for rollout in matches[:limit]]
        return json_response({"object": "list", "data": rows, "has_more": len(matches) > limit})

    return [
        Route("/v1/rollouts", begin, methods=["POST"]),
        Route("/v1/rollouts", index, methods=["GET"]),
        Route("/v1/rollouts/{id}", one, methods=["GET"]),
        Route("/v1/rollouts/{id}/reward", reward, methods=["POST"]),
        Route("/v1/rollouts/{id}/end", end, methods=["POST"]),
    ]


def _filter(request: Request) -> RolloutFilter:
    """Raises Unprocessable."""
    query = request.query_params
    status, held_out = query.get("status"), query.get("held_out")
    if status is not None and status not in STATUSES:
        raise Unprocessable(
            f"status must be {', '.join(STATUSES[:-1])} or {STATUSES[-1]}, not {status[:20]!r}",
            param="status",
        )
    if held_out not in (None, "true", "false"):
        raise Unprocessable(f"held_out must be true or false, not {held_out[:20]!r}", param="held_out")
    return RolloutFilter(
        query.get("task"),
        query.get("group"),
        status,  # type: ignore[arg-type]  # checked above
        None if held_out is None else held_out == "true",
        query.get("after"),
    )


def _note(rollout: Rollout) -> str | None:
    """Return what keeps a rollout from teaching, as far as that shows."""
    if not rollout.steps and (rollout.rewards or rollout.status != "open"):
        return (
            "no request carried this rollout, so it teaches nothing: give the agent its base_url or api_key"
        )
    if rollout.status != "open" and not rollout.rewards:
        return "it ended without a reward, so nothing is learnt from it"
    return None


def _shown(request: Request, rollout: Rollout, key: str) -> dict[str, Any]:
    """Return a rollout as JSON, with the addresses that an agent can be given."""
    place = {step.completion_id: number for number, step in enumerate(rollout.steps)}
    plain = ("id", "created_at", "ends_at", "ended_at", "status", "task", "group", "seed", "version")
    return {
        "object": "rollout",
        **{name: getattr(rollout, name) for name in plain},
        "base_url": f"{request.url.scheme}://{request.url.netloc}/r/{rollout.id}/v1",
        "api_key": key,
        "tags": dict(rollout.tags),
        "held_out": rollout.held_out,
        "learnt_in": rollout.learnt_in,
        "note": _note(rollout),
        "reward": rollout.reward,
        "rewards": [
            {
                "value": reward.value,
                "step": place.get(reward.completion_id) if reward.completion_id else None,
                "reason": reward.reason,
                "created_at": reward.created_at,
            }
            for reward in rollout.rewards
        ],
        "completions": [step.completion_id for step in rollout.steps],
        "steps": [
            {"completion_id": step.completion_id, "continues": place.get(step.continues or "")}
            for step in rollout.steps
        ],
    }


class AgentRollouts(Rollouts):
    name = "rollouts"
    foreign = False

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        return rollout_routes(self, core.log)
