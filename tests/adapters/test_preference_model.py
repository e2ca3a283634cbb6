from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.adapters.preference_model import PreferenceModel, RatedReply, features, fit_preference_model

WORDS = ("river", "stone", "light", "paper", "green", "window", "music", "garden", "winter", "bread")


def reply(dice: random.Random, words: int, opening: str = "") -> str:
    return opening + " ".join(dice.choice(WORDS) for _ in range(words)).capitalize() + "."


def rate(texts: list[str], good: list[bool], seed: int = 0) -> list[RatedReply]:
    return [
        RatedReply(f"c{seed}-{i}", "What is a river?", text, True, 1.0 if liked else -1.0, 1.0)
        for i, (text, liked) in enumerate(zip(texts, good, strict=True))
    ]


def by_length(seed: int, count: int = 40) -> list[RatedReply]:
    """Someone who likes fewer than 15 words."""
    dice = random.Random(seed)
    sizes = [dice.randint(5, 30) for _ in range(count)]
    return rate([reply(dice, size) for size in sizes], [size < 15 for size in sizes], seed)


def fitted(rated: list[RatedReply]) -> PreferenceModel:
    found = fit_preference_model(rated)
    assert found
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_liking_for_short_replies_is_learnt_from_forty_ratings(seed: int) -> None:
    model, dice = fitted(by_length(seed)), random.Random(99)
    short, long = (model.probability_liked("What is a river?", reply(dice, size), True) for size in (6, 28))
    assert short > 0.8
    assert long < 0.2


@pytest.mark.parametrize("seed", range(3))
def test_a_liking_for_being_addressed_is_learnt(seed: int) -> None:
    dice = random.Random(seed)
    addressed = [dice.random() < 0.4 for _ in range(40)]
    texts = [
        reply(dice, dice.randint(8, 20), "You know your " if you else "They know their ") for you in addressed
    ]
    model = fitted(rate(texts, addressed, seed))
    you, they = "Your river is green, as you know.", "The river is green."
    assert model.probability_liked("?", you, True) > model.probability_liked("?", they, True)


def test_ratings_that_follow_no_visible_rule_give_no_preference_model() -> None:
    found = 0
    for seed in range(100):
        dice = random.Random(seed)
        texts = [reply(dice, dice.randint(5, 30)) for _ in range(40)]
        found += fit_preference_model(rate(texts, [dice.random() < 0.4 for _ in texts], seed)) is not None
    assert found <= 3


@pytest.mark.parametrize("kept", [0, 3])
def test_one_sided_ratings_give_no_preference_model(kept: int) -> None:
    rated = by_length(0)
    good = [each for each in rated if each.reward > 0]
    bad = [each for each in rated if each.reward < 0]
    assert fit_preference_model(good + bad[:kept]) is None
    assert fit_preference_model(bad + good[:kept]) is None
    assert fit_preference_model([]) is None


def test_neutral_and_weightless_ratings_change_nothing() -> None:
    rated = by_length(0)
    more = [replace(each, conversation_id="x" + each.conversation_id, reward=0.0) for each in rated]
    more += [
        replace(each, conversation_id="y" + each.conversation_id, weight=0.0, reward=-each.reward)
        for each in rated
    ]
    plain, padded = fitted(rated), fitted(rated + more)
    assert np.array_equal(plain.coefficients, padded.coefficients)


def test_replies_of_one_conversation_do_not_vouch_for_each_other() -> None:
    """A rule that holds within a conversation only must not be found to generalise."""
    dice = random.Random(0)
    rated = []
    for conversation in range(6):
        liked = conversation % 2 == 0
        text = reply(dice, 12, "1. " if conversation in (0, 1) else "")
        rated += [RatedReply(f"c{conversation}", "?", text, True, 1.0 if liked else -1.0, 1.0)] * 7
    assert fit_preference_model(rated) is None


def test_inverting_all_ratings_inverts_the_preference_model() -> None:
    rated = by_length(0)
    model, inverse = fitted(rated), fitted([replace(each, reward=-each.reward) for each in rated])
    for words in (4, 14, 30):
        text = reply(random.Random(words), words)
        liked, disliked = (each.probability_liked("?", text, True) for each in (model, inverse))
        assert liked == pytest.approx(1 - disliked, abs=1e-6)


def test_classes_weigh_the_same_however_many_there_are() -> None:
    rated = by_length(0)
    good = [each for each in rated if each.reward > 0]
    once, often = (
        np.mean([model.probability_liked("?", each.text, True) for each in rated])
        for model in (fitted(rated), fitted(rated + good * 3))
    )
    assert abs(often - once) < 0.05


MODEL = fitted(by_length(0))


@given(prompt=st.text(max_size=50), text=st.text(max_size=400), finished=st.booleans())
def test_any_text_has_finite_features_and_a_probability(prompt: str, text: str, finished: bool) -> None:
    assert np.isfinite(features(prompt, text, finished)).all()
    assert 0 <= MODEL.probability_liked(prompt, text, finished) <= 1


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(
        st.tuples(st.integers(0, 9), st.text(max_size=40), st.sampled_from([1.0, -1.0, 0.5])), max_size=40
    )
)
def test_any_ratings_are_survived(data: list[tuple[int, str, float]]) -> None:
    fit_preference_model([RatedReply(f"c{c}", "?", text, True, reward, 1.0) for c, text, reward in data])
