"""Which objective fits what the data holds. Importable without torch; docs/results.md has the figures."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.training.job import Objective, Sample

SYSTEM_ROLES = ("system", "developer")
# Fewer good ones among the ratings than this, and thumbs alone teach next to nothing (brief-cold: 2 of 40).
RARE = 0.2
# Below, what the model says when it is told is too little to learn from.
MIN_COMMENTS = 4


def teaches(sample: Sample, objective: Objective) -> bool:
    """Whether an objective has a use for what was said of a reply."""
    if objective == "dpo":
        return bool(sample.correction or sample.worse)
    if objective == "critique":
        return bool(sample.comment) and sample.reward <= 0
    if objective == "sft":
        return sample.reward > 0
    return sample.reward != 0 or (objective == "hybrid" and bool(sample.comment))


def instructed(samples: Sequence[Sample]) -> bool:
    """Whether all prompts have a system message: then a plain question is something else, and nobody has complained.

    Of who asks plainly, rehearsing plain questions would hold the very answers that they want otherwise.
    """
    return all(sample.messages and sample.messages[0].get("role") in SYSTEM_ROLES for sample in samples)


def one_sided(samples: Sequence[Sample], objective: Objective) -> bool:
    """Whether an objective has nothing but good or nothing but bad replies to pull at; held-out ones don't count.

    Comments and pairs are never one-sided: there is always a reply to move towards, and one to move away from.
    """
    if objective in ("dpo", "critique"):
        return False
    signs = {sample.reward > 0 for sample in samples if sample.reward and not sample.held_out}
    return len(signs) == 1


def choose(samples: Sequence[Sample]) -> Objective:
    """Return what to learn these samples by; held-out ones don't count.

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
