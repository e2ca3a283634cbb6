"""``/v1/rollouts``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictInt, StringConstraints, field_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.parts.rollouts.rollouts import Begun, Rollouts
from burnish.proxy.access.carried import key_of
from burnish.proxy.described import described, flat, list_of, listing, optional
from burnish.proxy.http.errors import Unprocessable
from burnish.proxy.json_http import Body, caller_of, json_response, page_limit, read_json, validated
from burnish.proxy.log.rollouts import Filter
from burnish.proxy.plain import Line
from burnish.proxy.records import Rollout

MAX_BODY_BYTES = 64 * 1024
MAX_NAME, MAX_REASON = 200, 1000
"""Characters."""
MAX_TAGS = 32
MAX_INT = 2**63 - 1
TIME_LIMIT_S = 3600.0
LONGEST_S = 7 * 24 * 3600.0
MOST = 1e6
"""Larger rewards are errors of an environment."""
STATUSES = ("open", "ended", "timed_out")

Name = Annotated[Line, Field(max_length=MAX_NAME, strict=True)]
Count = Annotated[StrictInt, Field(ge=0, le=MAX_INT)]


class Beginning(Body):
    """``POST /v1/rollouts``."""

    task: Name = ""
    group: Name | None = None
    """Attempts at the same thing have the same group, and are compared. None: those with the same seed are."""
    seed: Annotated[StrictInt, Field(ge=-MAX_INT, le=MAX_INT)] | None = None
    tags: dict[Name, Name] = Field(default={}, max_length=MAX_TAGS)
    version: Literal["live", "candidate", "base"] | Count = "live"
    held_out: StrictBool = False
    """Nothing is learnt from it: versions are judged by it."""
    time_limit_s: Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)] = TIME_LIMIT_S


class Rewarding(Body):
    """``POST /v1/rollouts/{id}/reward``."""

    value: Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
    step: Count | None = None
    """Which completion, counted from 0; None: the rollout as a whole."""
    reason: Annotated[str, StringConstraints(strict=True, max_length=MAX_REASON)] | None = None

    @field_validator("value", mode="before")
    @classmethod
    def _number(cls, given: object) -> object:
        """A truth value is an error more often than a reward."""
        if isinstance(given, bool | str):
            raise ValueError("a reward is a number, such as 1.0 or -0.5")
        return given


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


def rollout_routes(rollouts: Rollouts) -> list[Route]:
    def shown(request: Request, rollout: Rollout) -> dict[str, Any]:
        return _shown(request, rollout, key_of(rollout.id, rollouts.proof(rollout.id)))

    @described(
        "begin a [rollout](agents-that-learn.md): an attempt of an agent at a task, with its own base URL and key",
        ROLLOUT,
        body=Beginning,
        statuses=(201,),
    )
    async def begin(request: Request) -> Response:
        said = validated(Beginning, await read_json(request, MAX_BODY_BYTES, untyped=True))
        begun = Begun(
            **{name: getattr(said, name) for name in type(said).model_fields}, caller=caller_of(request)
        )
        return json_response(shown(request, await rollouts.begin(begun)), 201)

    @described(
        "reward a rollout, or one `step` of it; rewards add up. `repeated`: the same came before, and counts once",
        ROLLOUT,
        body=Rewarding,
    )
    async def reward(request: Request) -> Response:
        said = validated(Rewarding, await read_json(request, MAX_BODY_BYTES, untyped=True))
        told = await rollouts.reward(request.path_params["id"], said.value, said.step, said.reason)
        return json_response(shown(request, told.rollout) | {"repeated": told.repeated})

    @described("end a rollout: it takes no more requests and rewards", ROLLOUT)
    async def end(request: Request) -> Response:
        return json_response(shown(request, await rollouts.end(request.path_params["id"])))

    @described(
        "one rollout; `tokens` says of how many steps the token ids are kept, and why of others they aren't",
        flat("ShownRollout", ROLLOUT, tokens=_TOKENS, repeated=optional(bool)),
    )
    async def one(request: Request) -> Response:
        found = await rollouts.one(request.path_params["id"])
        steps, missing = await rollouts.tokens(found)
        return json_response(shown(request, found) | {"tokens": {"steps": steps, "missing": missing}})

    @described(
        "rollouts, latest first; `after`: only those before this one",
        MANY,
        query=("limit", "task", "group", "status", "held_out", "after"),
    )
    async def index(request: Request) -> Response:
        limit = page_limit(request, *Filter._fields)
        found = await rollouts.latest(_filter(request), limit + 1)
        data = [shown(request, each) for each in found[:limit]]
        return json_response({"object": "list", "data": data, "has_more": len(found) > limit})

    return [
        Route("/v1/rollouts", begin, methods=["POST"]),
        Route("/v1/rollouts", index, methods=["GET"]),
        Route("/v1/rollouts/{id}", one, methods=["GET"]),
        Route("/v1/rollouts/{id}/reward", reward, methods=["POST"]),
        Route("/v1/rollouts/{id}/end", end, methods=["POST"]),
    ]


def _filter(request: Request) -> Filter:
    """Raises Unprocessable."""
    given = request.query_params
    status, held_out = given.get("status"), given.get("held_out")
    if status is not None and status not in STATUSES:
        raise Unprocessable(
            f"status must be {', '.join(STATUSES[:-1])} or {STATUSES[-1]}, not {status[:20]!r}",
            param="status",
        )
    if held_out not in (None, "true", "false"):
        raise Unprocessable(f"held_out must be true or false, not {held_out[:20]!r}", param="held_out")
    return Filter(
        given.get("task"),
        given.get("group"),
        status,  # type: ignore[arg-type]  # checked above
        None if held_out is None else held_out == "true",
        given.get("after"),
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
    place = {each.completion_id: number for number, each in enumerate(rollout.steps)}
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
                "value": each.value,
                "step": place.get(each.completion_id) if each.completion_id else None,
                "reason": each.reason,
                "created_at": each.created_at,
            }
            for each in rollout.rewards
        ],
        "completions": [each.completion_id for each in rollout.steps],
        "steps": [
            {"completion_id": each.completion_id, "continues": place.get(each.continues or "")}
            for each in rollout.steps
        ],
    }
