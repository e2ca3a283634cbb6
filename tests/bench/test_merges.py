"""What the table of merges is computed from: shares and their intervals, divergence."""

from __future__ import annotations

import math

import pytest

from bench.merges.divergence import kl_per_token, slope
from bench.merges.models import QUESTIONS
from bench.merges.replies import Reply, difference

SHORT, LONG = "Tea is a drink made of leaves.", "word " * 40
HALF = {1: math.log(0.5), 2: math.log(0.5)}
MOST = {1: math.log(0.75), 2: math.log(0.25)}


def replies(texts: dict[int, str]) -> dict[int, Reply]:
    return {place: Reply(place, text, finished=True) for place, text in texts.items()}


def test_a_difference_counts_common_places_and_clusters_by_question() -> None:
    questions = len(QUESTIONS)
    # The same question three times gives one cluster with three gains; the other question gains nothing.
    better = replies({0: SHORT, questions: SHORT, 2 * questions: SHORT, 1: SHORT, 7: LONG})
    worse = replies({0: LONG, questions: LONG, 2 * questions: LONG, 1: SHORT})
    found = difference(better, worse)
    assert found
    assert (found.pairs, found.share, found.difference) == (4, 1, 0.75)
    # Clusters deviate by 3 · .25 and by -.75: √(2 · (.75² + .75²)) / 4.
    assert found.half_width == pytest.approx(1.96 * 1.5 / 4)
    assert difference(better, replies({5: SHORT})) is None


def test_divergence_is_zero_for_the_same_and_right_for_two_tokens() -> None:
    assert kl_per_token({"0": [HALF]}, {"0": [HALF]}) == pytest.approx(0, abs=1e-6)
    assert kl_per_token({"0": [HALF, HALF]}, {"0": [HALF, MOST]}) == pytest.approx(
        (0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)) / 2, abs=1e-6
    )


def test_the_slope_says_how_much_of_the_effect_a_variant_has() -> None:
    adapter, base = {"0": [MOST]}, {"0": [HALF]}
    middle = {"0": [{token: (MOST[token] + HALF[token]) / 2 for token in MOST}]}
    assert [slope(adapter, base, variant) for variant in (base, middle, adapter)] == pytest.approx(
        [0, 0.5, 1]
    )
