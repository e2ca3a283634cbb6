"""Brings measurements, sampled replies and ratings into the terms of the gate. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from burnish.gate import Evidence, FactCheck, SampledReply
from burnish.gate.evidence import Attempted
from burnish.gate.preference import MOST_RATED, RatedReply, last_question, text_of
from burnish.proxy.records import RatedCompletion
from burnish.training.job import Evaluation, Rollout


def evidence(
    evaluation: Evaluation,
    rollouts: Sequence[Rollout],
    known: Sequence[FactCheck],
    rated: Sequence[RatedReply],
    attempts: tuple[Attempted, ...] | None,
) -> Evidence:
    """``attempts``: None if the version didn't learn from an agent's rewards."""
    related = {(each.policy, each.prompt_id): each.pmi for each in evaluation.related}
    sampled = {
        policy: tuple(
            SampledReply(
                each.prompt_id,
                last_question(each.messages),
                each.reply,
                each.finished,
                related.get((each.policy, each.prompt_id)),
                each.tools,
                each.tool_calls,
                each.error,
            )
            for each in rollouts
            if each.policy == policy
        )
        for policy in ("candidate", "incumbent")
    }
    return Evidence(
        held_out=evaluation.held_out,
        ratings=tuple(rated),
        comments=evaluation.words,
        facts=tuple(known),
        candidate=sampled["candidate"],
        incumbent=sampled["incumbent"],
        kl_per_token=evaluation.kl_per_token,
        general_loss=evaluation.general_loss,
        general_loss_reference=evaluation.general_loss_reference,
        weight_change=evaluation.weight_change,
        attempts=attempts,
    )


def rated_replies(rated: Iterable[RatedCompletion], count: int = MOST_RATED) -> list[RatedReply]:
    """Return the first rated text replies. Tool calls are left out: the preference model judges words and form."""
    replies = (
        RatedReply(
            conversation_id=each.completion.conversation_id,
            prompt=last_question(each.completion.messages),
            text=text_of(reply.get("content")),
            finished=each.completion.ended.finish_reason != "length",
            reward=each.reward,
            weight=each.weight,
        )
        for each in rated
        if not (reply := each.completion.reply or {}).get("tool_calls")
    )
    return [*islice(replies, count)]
