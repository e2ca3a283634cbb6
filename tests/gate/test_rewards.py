"""The preference model: what it learns from a few dozen ratings, and when it isn't believed."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.gate.rewards import (
    Order,
    PlainReply,
    PreferenceModel,
    RatedReply,
    believed_preference_model,
    fit_preference_model,
    order,
)
from burnish.gate.rewards.features import Form, form, words

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
    found = believed_preference_model(rated)
    assert found
    return found


def scored(model: PreferenceModel, *texts: str) -> list[float]:
    return model.scores([PlainReply("What is a river?", text, True) for text in texts]).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_a_liking_for_short_replies_is_learnt_from_forty_ratings(seed: int) -> None:
    model, dice = fitted(by_length(seed)), random.Random(99)
    short, long = scored(model, reply(dice, 6), reply(dice, 28))
    assert model.view == "form"
    assert short > 0.4
    assert long < -0.4


@pytest.mark.parametrize("seed", range(3))
def test_a_liking_for_a_word_is_learnt_from_48_ratings(seed: int) -> None:
    dice = random.Random(seed)
    likes = [dice.random() < 0.5 for _ in range(48)]
    texts = [reply(dice, dice.randint(8, 20), "Usually " if liked else "Mostly ") for liked in likes]
    model = fitted(rate(texts, likes, seed))
    said, unsaid = scored(model, "Usually the river is green.", "Mostly the river is green.")
    assert model.view == "words"
    assert model.order.lower > 0.9
    assert said > unsaid + 0.5


def test_a_word_of_a_language_without_spaces_is_learnt() -> None:
    polite = [bool(place % 2) for place in range(40)]
    texts = [f"川は水が流れる{WORDS[i % 10]}{'のです' if yes else 'のだ'}。" for i, yes in enumerate(polite)]
    said, unsaid = scored(fitted(rate(texts, polite)), "川は長いのです。", "川は長いのだ。")
    assert said > unsaid


def test_ratings_that_follow_no_visible_rule_are_seldom_believed() -> None:
    believed = 0
    for seed in range(60):
        dice = random.Random(seed)
        texts = [reply(dice, dice.randint(5, 30)) for _ in range(40)]
        ratings = rate(texts, [dice.random() < 0.4 for _ in texts], seed)
        believed += believed_preference_model(ratings) is not None
    assert believed <= 2


@pytest.mark.parametrize("kept", [0, 3])
def test_one_sided_ratings_give_no_preference_model(kept: int) -> None:
    rated = by_length(0, 120)
    good = [each for each in rated if each.reward > 0]
    bad = [each for each in rated if each.reward < 0]
    assert min(len(good), len(bad)) >= 32
    assert fit_preference_model(good + bad[:kept]) is None
    assert fit_preference_model(bad + good[:kept]) is None
    assert fit_preference_model([]) is None


def test_32_ratings_are_needed() -> None:
    rated = by_length(0, 32)
    assert fit_preference_model(rated)
    assert fit_preference_model(rated[:31]) is None


def test_neutral_and_weightless_ratings_change_nothing() -> None:
    rated = by_length(0)
    more = [replace(each, conversation_id="x" + each.conversation_id, reward=0.0) for each in rated]
    more += [
        replace(each, conversation_id="y" + each.conversation_id, weight=0.0, reward=-each.reward)
        for each in rated
    ]
    plain, padded = fitted(rated), fitted(rated + more)
    assert np.array_equal(plain.fitted.coefficients, padded.fitted.coefficients)


def test_replies_of_one_conversation_do_not_vouch_for_each_other() -> None:
    """A rule that holds within a conversation only must not be found to generalise."""
    dice = random.Random(0)
    rated = []
    for conversation in range(6):
        liked = conversation % 2 == 0
        text = reply(dice, 12, "1. " if conversation in (0, 1) else "")
        rated += [RatedReply(f"c{conversation}", "?", text, True, 1.0 if liked else -1.0, 1.0)] * 7
    assert believed_preference_model(rated) is None


def test_inverting_all_ratings_inverts_the_preference_model() -> None:
    rated = by_length(0)
    model, inverse = fitted(rated), fitted([replace(each, reward=-each.reward) for each in rated])
    texts = [reply(random.Random(count), count) for count in (4, 14, 30)]
    assert scored(model, *texts) == pytest.approx([-score for score in scored(inverse, *texts)])


def test_classes_weigh_the_same_however_many_there_are() -> None:
    rated = by_length(0)
    good = [each for each in rated if each.reward > 0]
    once, often = (
        np.mean(scored(model, *(each.text for each in rated)))
        for model in (fitted(rated), fitted(rated + good * 3))
    )
    assert abs(often - once) < 0.1


def test_the_error_of_few_labels_is_larger_than_that_of_many() -> None:
    dice = random.Random(1)
    new, old = ([PlainReply("?", reply(dice, size), True) for _ in range(24)] for size in (8, 20))
    few, many = (fitted(by_length(0, count)).gains(new, old)[1].std() for count in (36, 300))
    assert few > 1.5 * many


MODEL = fitted(by_length(0))


@given(prompt=st.text(max_size=50), text=st.text(max_size=400), finished=st.booleans())
def test_any_text_has_finite_features_and_a_score(prompt: str, text: str, finished: bool) -> None:
    assert np.isfinite(form(PlainReply(prompt, text, finished))).all()
    assert all(map(str.strip, words(text)))
    assert np.isfinite(MODEL.scores([PlainReply(prompt, text, finished)])).all()


@settings(max_examples=40, deadline=None)
@given(
    data=st.lists(
        st.tuples(st.integers(0, 9), st.text(max_size=40), st.sampled_from([1.0, -1.0, 0.5])),
        min_size=32,
        max_size=48,
    )
)
def test_any_ratings_are_survived(data: list[tuple[int, str, float]]) -> None:
    fit_preference_model([RatedReply(f"c{c}", "?", text, True, reward, 1.0) for c, text, reward in data])


@given(
    good=st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    bad=st.lists(st.integers(-5, 5), min_size=1, max_size=20),
)
def test_an_order_is_a_share_and_turns_round_with_its_sides(good: list[int], bad: list[int]) -> None:
    found, turned = order(good, bad), order(bad, good)
    assert found.share == pytest.approx(1 - turned.share)
    assert 0 <= found.share <= 1
    assert found.error == pytest.approx(turned.error, abs=1e-9)


@pytest.mark.parametrize(
    ("share", "error", "believed"), [(0.9, 0.05, True), (0.9, 0.16, False), (0.65, 0.0, False)]
)
def test_an_order_is_believed_by_its_lower_bound(share: float, error: float, believed: bool) -> None:
    assert Order(share, error).believed is believed


def test_a_feature_that_never_varies_says_nothing() -> None:
    """Means of equal numbers differ from them by rounding."""
    same = [PlainReply("What is a river?", "A river runs one two.", True)] * 7
    other = PlainReply("What is a river?", "You! Do you know? 1", False)
    assert np.abs(Form.of(same).table([other])).max() < 100
