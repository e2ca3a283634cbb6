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
    log: Log, cursor: str, limit: int, task: str | None, rules: Rules
) -> tuple[list[dict[str, Any]], str | None]:
    """Return rollouts with their steps, earliest first, and the ID to continue after, if any. Raises Unavailable."""
    rollouts = await log.earliest_rollouts(cursor, limit + 1, task)
    page = rollouts[:limit]
    completions = await log.rollout_steps([rollout.id for rollout in page])
    tokens = await log.tokens(list(completions))
    missing = await log.without_tokens(list(completions))
    rows = [_whole(rollout, completions, tokens, missing, rules) for rollout in page]
    return rows, page[-1].id if len(rollouts) > limit else None


def _whole(
    rollout: Rollout,
    completions: Mapping[str, Completion],
    tokens: Mapping[str, Tokens],
    missing: Mapping[str, str],
    rules: Rules,
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
                **_step(completions[step.completion_id]),
                "continues": place.get(step.continues or ""),
                "reward": step_rewards.get(step.completion_id),
                "tokens": tokens[step.completion_id]._asdict() if step.completion_id in tokens else None,
                "missing": missing.get(step.completion_id, NOT_CAPTURED),
            }
            for step in steps
        ],
    }


def _step(completion: Completion) -> dict[str, Any]:
    end = completion.ended
    return {
        "completion_id": completion.id,
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
        if fault := step.fault or untaught(table, rules.teachers):
            return in_words(fault, table)
        if withheld(step.ended.holds_credential, scrub=rules.scrub):
            return in_words("credential", None)
        if step.reply is None:
            return UNSENT
    return None
