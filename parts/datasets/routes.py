"""HTTP routes of whole records, rated answers and rollouts: what `burnish data` is a client of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StrictBool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.parts.core import Core
from burnish.parts.datasets.records import read_record, record_json
from burnish.proxy.described import described, flat, list_of, page_of
from burnish.proxy.feedback.usability import usability_by
from burnish.proxy.http.errors import Unprocessable
from burnish.proxy.json_http import Body, json_response, page_limit, read_json, validated
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules, in_words
from burnish.proxy.log.rollouts import Rollout
from burnish.proxy.log.transfer import Outcome, RatedAnswer, Record
from burnish.proxy.records import Completion, Tokens
from burnish.training.teachable import unteachable

MAX_BODY_BYTES = 64 * 1024 * 1024
"""One record may hold a request of megabytes."""
MOST_RECORDS = 200
"""In one transaction: captures and ratings wait for it."""


class RecordsRequest(Body):
    """The body of ``POST /burnish/records``."""

    records: Annotated[list[dict[str, Any]], Field(default_factory=list, max_length=MOST_RECORDS)]
    """Of the same form as the lines of an export."""
    dry_run: StrictBool = False


RATED_ANSWER: dict[str, Any] = {
    "id": str,
    "messages": list_of(dict),
    "tools": list_of(dict),
    "reply": Any,
    "reward": float,
    "comment": str | None,
    "correction": str | None,
    "worse": list_of(dict),
    "opposed": list_of(dict),
    "obstacle": str | None,
}


def record_routes(core: Core) -> list[Route]:
    log, rules = core.log, core.rules

    @described(
        "list [everything in the log](data.md#move-a-log), earliest first",
        page_of(dict[str, Any], "Records"),
        query=("limit", "after"),
    )
    async def everything(request: Request) -> Response:
        limit = page_limit(request, "after")
        records = await log.records(request.query_params.get("after", ""), limit + 1)
        rows = [record_json(record) for record in records[:limit]]
        if len(records) <= limit:
            rows += [record_json(row) for row in await log.instruction_rows()]
        return json_response({"object": "list", "data": rows, "has_more": len(records) > limit})

    @described(
        "store [records](data.md#import), or with `dry_run` only see what would become of them; those that are there "
        "already stay as they are",
        flat("Imported", data=list_of(flat("Outcome", Outcome))),
        body=RecordsRequest,
    )
    async def store(request: Request) -> Response:
        body = validated(RecordsRequest, await read_json(request, MAX_BODY_BYTES))
        lines = [_read(line) for line in body.records]
        records = [line for line in lines if not isinstance(line, Outcome)]
        new_outcomes = iter(await log.add_records(records, usability_by(rules), trial=body.dry_run))
        if not body.dry_run:
            core.on_imported()
        outcomes = [line if isinstance(line, Outcome) else next(new_outcomes) for line in lines]
        return json_response({"data": [outcome._asdict() for outcome in outcomes]})

    @described(
        "list [rated answers](data.md#export-for-training-elsewhere) with what counts of their feedback, by "
        "conversation; `limit` counts conversations",
        flat("RatedAnswers", data=list_of(flat("RatedAnswer", **RATED_ANSWER)), after=str | None),
        query=("limit", "after"),
    )
    async def rated(request: Request) -> Response:
        limit = page_limit(request, "after")
        answers, cursor = await log.rated_answers(request.query_params.get("after", ""), limit, rules)
        return json_response({"data": [_rated_json(answer) for answer in answers], "after": cursor})

    @described(
        "list whole [rollouts](other-trainers.md) with their steps and token ids, earliest first",
        flat("WholeRollouts", data=list_of(dict), after=str | None),
        query=("limit", "after", "task"),
    )
    async def rollouts(request: Request) -> Response:
        limit = page_limit(request, "after", "task")
        query = request.query_params
        rows, cursor = await whole_rollouts(log, query.get("after", ""), limit, query.get("task"), rules)
        return json_response({"data": rows, "after": cursor})

    return [
        Route("/burnish/records", everything, methods=["GET"]),
        Route("/burnish/records", store, methods=["POST"]),
        Route("/burnish/rated", rated, methods=["GET"]),
        Route("/burnish/rollouts", rollouts, methods=["GET"]),
    ]


def _read(line: dict[str, Any]) -> Record | Outcome:
    try:
        return read_record(line)
    except Unprocessable as error:
        return Outcome(new=False, refused=error.message)


def _rated_json(answer: RatedAnswer) -> dict[str, Any]:
    rating, completion = answer.rated, answer.rated.completion
    fault = in_words(rating.fault, completion.served.upstream_table) if rating.fault else None
    return {
        "id": rating.answer,
        "messages": completion.messages,
        "tools": completion.params.get("tools") or [],
        "reply": completion.reply,
        "reward": rating.reward,
        "comment": rating.comment,
        "correction": rating.correction,
        "worse": rating.worse,
        "opposed": answer.opposed,
        "obstacle": fault or unteachable(completion.messages, completion.reply or {}),
    }


# -- whole rollouts: what other trainers' formats are made of ----------------------------------------------------------

FACTS = ("id", "created_at", "ended_at", "status", "task", "group", "seed", "version", "held_out", "reward")
NOT_CAPTURED = Tokens(missing="no token ids were captured")
UNSENT = "it has no answer"


async def whole_rollouts(
    log: Log, cursor: str, limit: int, task: str | None, rules: Rules
) -> tuple[list[dict[str, Any]], str | None]:
    """Return rollouts with their steps, earliest first, and the ID to continue after, if any. Raises Unavailable."""
    rollouts = await log.earliest_rollouts(cursor, limit + 1, task)
    page = rollouts[:limit]
    completions = await log.rollout_steps([rollout.id for rollout in page])
    tokens = await log.tokens(list(completions))
    rows = [_whole(rollout, completions, tokens, rules) for rollout in page]
    return rows, page[-1].id if len(rollouts) > limit else None


def _whole(
    rollout: Rollout, completions: Mapping[str, Completion], tokens: Mapping[str, Tokens], rules: Rules
) -> dict[str, Any]:
    steps = [step for step in rollout.steps if step.completion_id in completions]
    place = {step.completion_id: number for number, step in enumerate(steps)}
    step_rewards: dict[str | None, float] = {}
    for reward in rollout.rewards:
        step_rewards[reward.completion_id] = step_rewards.get(reward.completion_id, 0.0) + reward.value
    return {
        **{name: getattr(rollout, name) for name in FACTS},
        "tags": dict(rollout.tags),
        "reasons": [reward.reason for reward in rollout.rewards if reward.reason],
        "obstacle": _obstacle(rollout, [completions[step.completion_id] for step in steps], rules),
        "steps": [
            {
                **_step(completions[step.completion_id], tokens.get(step.completion_id, NOT_CAPTURED)),
                "continues": place.get(step.continues or ""),
                "reward": step_rewards.get(step.completion_id),
            }
            for step in steps
        ],
    }


def _step(completion: Completion, tokens: Tokens) -> dict[str, Any]:
    end = completion.ended
    return {
        "completion_id": completion.id,
        "tokens": None if tokens.missing else tokens._asdict(),
        "missing": tokens.missing,
        "created_at": completion.asked.created_at,
        "total_s": end.total_s,
        "agent": completion.asked.agent,
        "model": completion.served.model_served,
        "messages": completion.messages,
        "tools": completion.params.get("tools") or [],
        "reply": completion.reply,
        "finish_reason": end.finish_reason,
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
    }


def _obstacle(rollout: Rollout, steps: list[Completion], rules: Rules) -> str | None:
    """Return why a rollout is no data for a trainer."""
    if rollout.status == "open":
        return "it has not ended"
    if rollout.held_out:
        return "it is held out to judge versions by"
    if not steps:
        return "the agent asked nothing"
    for step in steps:
        table = step.served.upstream_table
        if fault := step.fault or rules.fault(table, step.ended.holds_credential):
            return in_words(fault, table)
        if step.reply is None:
            return UNSENT
    return None
