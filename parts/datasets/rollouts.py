"""Whole rollouts as JSON: what other trainers' formats are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules, in_words, untaught, withheld
from burnish.proxy.records import Completion, Rollout, Tokens

FACTS = ("id", "created_at", "ended_at", "status", "task", "group", "seed", "version", "held_out", "reward")
NOT_CAPTURED = "no token ids were captured"
UNSENT = "it has no answer"


async def whole_rollouts(
    log: Log, after: str, limit: int, task: str | None, rules: Rules
) -> tuple[list[dict[str, Any]], str | None]:
    """Return rollouts with their steps, earliest first, and the ID to continue after, if any. Raises Unavailable."""
    found = await log.earliest_rollouts(after, limit + 1, task)
    page = found[:limit]
    completions = await log.rollout_steps([each.id for each in page])
    tokens = await log.tokens(list(completions))
    missing = await log.without_tokens(list(completions))
    data = [_whole(each, completions, tokens, missing, rules) for each in page]
    return data, page[-1].id if len(found) > limit else None


def _whole(
    rollout: Rollout,
    completions: Mapping[str, Completion],
    tokens: Mapping[str, Tokens],
    missing: Mapping[str, str],
    rules: Rules,
) -> dict[str, Any]:
    steps = [each for each in rollout.steps if each.completion_id in completions]
    place = {each.completion_id: number for number, each in enumerate(steps)}
    given: dict[str | None, float] = {}
    for reward in rollout.rewards:
        given[reward.completion_id] = given.get(reward.completion_id, 0.0) + reward.value
    return {
        **{name: getattr(rollout, name) for name in FACTS},
        "tags": dict(rollout.tags),
        "reasons": [each.reason for each in rollout.rewards if each.reason],
        "obstacle": _obstacle(rollout, [completions[each.completion_id] for each in steps], rules),
        "steps": [
            {
                **_step(completions[each.completion_id]),
                "continues": place.get(each.continues or ""),
                "reward": given.get(each.completion_id),
                "tokens": tokens[each.completion_id]._asdict() if each.completion_id in tokens else None,
                "missing": missing.get(each.completion_id, NOT_CAPTURED),
            }
            for each in steps
        ],
    }


def _step(completion: Completion) -> dict[str, Any]:
    ended = completion.ended
    return {
        "completion_id": completion.id,
        "created_at": completion.asked.created_at,
        "total_s": ended.total_s,
        "agent": completion.asked.agent,
        "model": completion.served.model_served,
        "messages": completion.messages,
        "tools": completion.params.get("tools") or [],
        "reply": completion.reply,
        "finish_reason": ended.finish_reason,
        "prompt_tokens": ended.prompt_tokens,
        "completion_tokens": ended.completion_tokens,
    }


def _obstacle(rollout: Rollout, steps: list[Completion], rules: Rules) -> str | None:
    """Return why a rollout is no data for a trainer."""
    if rollout.status == "open":
        return "it has not ended"
    if rollout.held_out:
        return "it is held out to judge versions by"
    if not steps:
        return "the agent asked nothing"
    for each in steps:
        table = each.served.upstream_table
        if fault := each.fault or untaught(table, rules.teachers):
            return in_words(fault, table)
        if withheld(each.ended.holds_credential, scrub=rules.scrub):
            return in_words("credential", None)
        if each.reply is None:
            return UNSENT
    return None
