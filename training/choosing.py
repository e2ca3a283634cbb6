"""Which objective fits what the data holds. Importable without torch; docs/learning.md shows the figures behind it."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.training.job import Objective, Sample

# Fewer good ones among the ratings than this, and thumbs alone teach next to nothing (brief-cold: 2 of 40).
RARE = 0.2
# Below, what the model says when it is told is too little to learn from.
MIN_COMMENTS = 4


def choose(samples: Sequence[Sample]) -> Objective:
    """Return what to learn these samples by; held-out ones don't count.

    Pairs alone → ``dpo``. Comments where good replies are rare or missing → ``critique``; beside enough of both
    classes → ``hybrid``. Anything else, bare ratings above all → ``mis_po``.
    """
    training = [sample for sample in samples if not sample.held_out]
    good = sum(sample.reward > 0 for sample in training)
    bad = sum(sample.reward < 0 for sample in training)
    comments = sum(bool(sample.comment) and sample.reward <= 0 for sample in training)
    pairs = sum(bool(sample.correction or sample.worse) for sample in training)
    if comments >= MIN_COMMENTS:
        return "critique" if good < RARE * (good + bad) or not good else "hybrid"
    if pairs > good + bad - pairs:
        return "dpo"
    return "mis_po"
