"""Brings measurements, sampled replies and ratings into the terms of the gate. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from burnish.gate import Evidence, SampledReply
from burnish.gate.evidence import Attempted
from burnish.gate.replies import last_question, text_of
from burnish.gate.rewards import MOST_RATED, RatedReply
from burnish.learner.sampling import Answers
from burnish.proxy.records import RatedCompletion
from burnish.proxy.surfaces.ends import finished
from burnish.training.job import Evaluation


def evidence(
    evaluation: Evaluation,
    answers: Answers,
    ratings: Sequence[RatedReply],
    attempts: tuple[Attempted, ...] | None,
) -> Evidence:
    """``attempts``: None if the version didn't learn from an agent's rewards."""
    related = {(score.policy, score.prompt_id): score.pmi for score in evaluation.related}
    sampled = {
        policy: tuple(
            SampledReply(
                reply.prompt_id,
                last_question(reply.messages),
                reply.reply,
                reply.finished,
                related.get((reply.policy, reply.prompt_id)),
                reply.tools,
                reply.tool_calls,
                reply.error,
            )
            for reply in answers.replies
            if reply.policy == policy
        )
        for policy in ("candidate", "incumbent")
    }
    return Evidence(
        held_out=evaluation.held_out,
        ratings=tuple(ratings),
        comments=evaluation.words,
        facts=answers.facts,
        requests=answers.requests,
        candidate=sampled["candidate"],
        incumbent=sampled["incumbent"],
        kl_per_token=evaluation.kl_per_token,
        general_loss=evaluation.general_loss,
        general_loss_reference=evaluation.general_loss_reference,
        weight_change=evaluation.weight_change,
        attempts=attempts,
    )


def rated_replies(answers: Iterable[RatedCompletion], count: int = MOST_RATED) -> list[RatedReply]:
    """Return the first rated text replies. Tool calls are left out: the preference model judges words and form."""
    replies = (
        RatedReply(
            conversation_id=answer.completion.conversation_id,
            prompt=last_question(answer.completion.messages),
            text=text_of(reply),
            finished=finished(answer.completion.ended.finish_reason),
            reward=answer.reward,
            weight=answer.weight,
        )
        for answer in answers
        if not (reply := answer.completion.reply or {}).get("tool_calls")
    )
    return [*islice(replies, count)]
