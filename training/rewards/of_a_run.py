"""The reward model of a run: learnt in the trainer from the ratings that the run may train on. Needs no framework.

It is a ``gate.rewards.PreferenceModel``. The gate judges by one, too, but that one learns from all ratings. This
one never sees a held-out rating, so the gate's proof isn't just what the policy was trained to please.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish.config.hyperparameters import Rewards
from burnish.gate.replies import last_question, text_of
from burnish.gate.rewards import (
    MIN_OF_A_CLASS,
    MIN_RATED,
    RatedReply,
    RewardModel,
    fit_preference_model,
    ridges,
)
from burnish.training.errors import NotTrainable
from burnish.training.job import Sample
from burnish.training.policy_gradient import told_apart


@dataclass(frozen=True, slots=True)
class RewardSource:
    model: RewardModel | None
    """None: from the ratings themselves."""
    words: str
    """What it is, for the run's record."""


def rewarding(samples: Sequence[Sample], rewards: Rewards) -> RewardSource:
    """Learn a reward model if it is wanted and can be believed. Raises NotTrainable when it is demanded and can't."""
    if rewards == "ratings":
        return RewardSource(None, "ratings")
    replies = [
        RatedReply(
            sample.conversation_id,
            last_question(sample.messages),
            text_of(sample.reply),
            sample.finished,
            sample.reward,
            sample.weight,
        )
        for sample in told_apart(samples)
        if not sample.reply.get("tool_calls")
    ]
    model = fit_preference_model(replies)
    if model and model.order.believed:
        order = model.order
        words = (
            f"a reward model of {model.view}, learnt from {len(replies)} answers: it orders {order.share:.0%} of "
            f"unseen pairs right (95 % sure: at least {order.lower:.0%})"
        )
        # The policy looks for replies whose score is too high by accident; the ensemble doubts those.
        return RewardSource(ridges(model), words)
    if rewards == "auto":
        return RewardSource(
            None, "ratings, because no reward model could be learnt that orders unseen ones right"
        )
    if model is None:
        good = sum(reply.reward > 0 for reply in replies)
        raise NotTrainable(
            f"a reward model needs {MIN_RATED} rated answers to train on, at least {MIN_OF_A_CLASS} of them good and "
            f"{MIN_OF_A_CLASS} bad; there are {good} good and {len(replies) - good} bad: rate more, or set "
            'train.advanced.rewards = "ratings"'
        )
    raise NotTrainable(
        f"the reward model orders {model.order.share:.0%} of unseen pairs right, with a lower bound of "
        f'{model.order.lower:.0%}: too few to be believed. Rate more, or set train.advanced.rewards = "ratings"'
    )
