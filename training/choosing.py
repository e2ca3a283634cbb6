"""Choose the objective that fits the feedback. Importable without torch; docs/results.md has the figures."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.training.job import Objective, Sample

SYSTEM_ROLES = ("system", "developer")
# Fewer good ones among the ratings than this, and thumbs alone teach next to nothing (brief-cold: 2 of 40).
RARE = 0.2
# With fewer comments, the model's corrected answers are too few to learn from.
MIN_COMMENTS = 4


def teaches(sample: Sample, objective: Objective) -> bool:
    """Return whether an objective can learn from the feedback on a reply."""
    if objective == "dpo":
        return bool(sample.correction or sample.worse)
    if objective == "critique":
        return bool(sample.comment) and sample.reward <= 0
    if objective == "sft":
        return sample.reward > 0
    return sample.reward != 0 or (objective == "hybrid" and bool(sample.comment))


def instructed(samples: Sequence[Sample]) -> bool:
    """Return whether all prompts have a system message.

    If so, plain questions can be rehearsed: no feedback is about them. Otherwise rehearsing would preserve the very
    answers that users want changed.
    """
    return all(sample.messages and sample.messages[0].get("role") in SYSTEM_ROLES for sample in samples)


def one_sided(samples: Sequence[Sample], objective: Objective) -> bool:
    """Return whether all replies are good, or all are bad, for an objective; held-out ones don't count.

    Comments and pairs are never one-sided: they name a reply to move towards, and one to move away from.
    """
    if objective in ("dpo", "critique"):
        return False
    signs = {sample.reward > 0 for sample in samples if sample.reward and not sample.held_out}
    return len(signs) == 1


def choose(samples: Sequence[Sample]) -> Objective:
    """Return the objective for these samples; held-out ones don't count.

    Comments where good replies are rare or missing → ``critique``. Corrections and preferences without a rating among
    them → ``dpo``. Anything else → ``mis_po``.
    """
    training = [sample for sample in samples if not sample.held_out]
    good = sum(sample.reward > 0 for sample in training)
    bad = sum(sample.reward < 0 for sample in training)
    comments = sum(bool(sample.comment) and sample.reward <= 0 for sample in training)
    if comments >= MIN_COMMENTS and good <= RARE * (good + bad):
        return "critique"
    pairs = sum(bool(sample.correction or sample.worse) for sample in training)
    return "dpo" if pairs and not good + bad else "mis_po"
