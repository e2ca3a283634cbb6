from __future__ import annotations

from dataclasses import replace
from math import inf, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.adapters.gate import (
    Check,
    Evidence,
    HeldOutReply,
    Known,
    Limits,
    SampledReply,
    ToldApart,
    Verdict,
    allowance,
    forgetting_by_chance,
    judge,
    preference_margin,
)
from burnish.adapters.gate.intervals import student_t
from burnish.adapters.preference_model import RatedReply
from burnish.adapters.replies import (
    asks_back,
    flatters,
    marked_up,
    near_empty,
    on_topic,
    refuses,
    repetitive,
    topics,
)

QUESTIONS = [
    f"What is the capital of {land}?" for land in ("France", "Japan", "Peru", "Chad", "Fiji", "Oman")
] + [
    "Why do volcanoes erupt?",
    "How does bread rise?",
    "Name a river in Africa.",
    "What do pandas eat?",
    "Who wrote the opera Carmen?",
    "When was the telephone invented?",
]


def held(conversation: str, reward: float, gain: float, weight: float = 1.0) -> HeldOutReply:
    return HeldOutReply(conversation, reward, weight, -1.0 + gain, -1.0)


def sampled(texts: list[str], finished: bool = True) -> tuple[SampledReply, ...]:
    return tuple(
        SampledReply(f"p{i}", QUESTIONS[i % len(QUESTIONS)], text, finished) for i, text in enumerate(texts)
    )


def sensible(count: int = 12) -> list[str]:
    return [
        f"{QUESTIONS[i % len(QUESTIONS)].rstrip('?.')}: that is well known, ask me for more."
        for i in range(count)
    ]


LONG = " There is much more to be said of it, and of many other things, at great length and in detail." * 2


def likes(short: bool, count: int = 40) -> tuple[RatedReply, ...]:
    """Ratings of someone who likes short replies, or long ones."""
    rated = []
    for i in range(count):
        question, long = QUESTIONS[i % len(QUESTIONS)], i % 5 < 3
        text = question.rstrip("?.") + ": that is well known." + (LONG if long else "")
        rated.append(RatedReply(f"r{i}", question, text, True, -1.0 if long is short else 1.0, 1.0))
    return tuple(rated)


def facts(both: int = 0, neither: int = 0, lost: int = 0, gained: int = 0) -> tuple[Known, ...]:
    """So many facts that both versions know, and so on."""
    kinds = (
        [(True, True)] * both + [(False, False)] * neither + [(False, True)] * lost + [(True, False)] * gained
    )
    return tuple(Known(f"Fact {i}?", new, old) for i, (new, old) in enumerate(kinds))


HEALTHY = Evidence(
    held_out=tuple(
        [held(f"g{i}", 1.0, 0.29 + 0.02 * i) for i in range(4)]
        + [held(f"b{i}", -1.0, -0.35 + 0.02 * i) for i in range(5)]
    ),
    rated=(),
    candidate=sampled(sensible()),
    incumbent=sampled(sensible()),
    words=(),
    known=facts(both=30, neither=18),
    kl_per_token=0.24,
    general_loss=3.0,
    general_loss_reference=2.99,
    weight_change=0.0015,
)


def check(verdict: Verdict, name: str) -> Check:
    return next(check for check in verdict.checks if check.name == name)


def failed(verdict: Verdict) -> set[str]:
    return {check.name for check in verdict.checks if check.passed is False}


def test_a_healthy_candidate_passes_and_says_why() -> None:
    verdict = judge(HEALTHY)
    assert verdict.outcome == "passed"
    assert "agrees more with you" in verdict.reason
    assert [check.name for check in verdict.checks] == [
        "ratings",
        "preference_model",
        "words",
        "kl",
        "weights",
        "near_empty",
        "repetitive",
        "cut",
        "off_topic",
        "general_text",
        "facts",
        "length",
        "refusals",
        "questions_back",
        "flattery",
        "markup",
        "length_bias",
    ]
    assert all(
        check.passed
        for check in verdict.checks
        if check.name not in ("preference_model", "words") and check.kind != "reported"
    )


def test_a_verdict_survives_json() -> None:
    verdict = judge(HEALTHY)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


# The margin: by hand.


def test_the_margin_is_half_the_difference_of_the_class_means() -> None:
    rated = [held("a", 1, 0.4), held("b", 1, 0.2), held("c", -1, -0.1), held("d", -1, -0.5)]
    assert preference_margin(rated, Limits()).estimate == pytest.approx((0.3 + 0.3) / 2)


def test_classes_count_the_same_however_many_there_are() -> None:
    rated = [held("a", 1, 0.4)] + [held(f"b{i}", -1, 0.1) for i in range(50)]
    assert preference_margin(rated, Limits()).estimate == pytest.approx((0.4 - 0.1) / 2)


def test_weights_and_the_size_of_a_reward_count() -> None:
    rated = [held("a", 1.0, 0.3, weight=3), held("b", 0.5, -0.3, weight=2), held("c", -1, 0.0)]
    assert preference_margin(rated, Limits()).estimate == pytest.approx((0.3 * 3 - 0.3 * 1) / 4 / 2)


def test_equal_replies_leave_no_uncertainty() -> None:
    rated = [held(f"g{i}", 1, 0.2) for i in range(4)] + [held(f"b{i}", -1, -0.2) for i in range(4)]
    margin = preference_margin(rated, Limits())
    assert (margin.lower, margin.estimate, margin.upper) == pytest.approx((0.2, 0.2, 0.2))


def test_the_bounds_of_few_conversations_are_students() -> None:
    # Half the difference of two means of three: s²/3 = .01/3 of each, four degrees of freedom, t = 2.776.
    rated = [held(f"g{i}", 1, x) for i, x in enumerate((0.2, 0.3, 0.4))]
    rated += [held(f"b{i}", -1, x) for i, x in enumerate((-0.1, 0.0, 0.1))]
    margin = preference_margin(rated, Limits())
    reach = 2.776 * sqrt(2 * 0.01 / 3) / 2
    assert margin.estimate == pytest.approx(0.15)
    assert margin.lower == pytest.approx(0.15 - reach, rel=0.05)
    assert margin.upper == pytest.approx(0.15 + reach, rel=0.05)


@pytest.mark.parametrize(
    ("confidence", "freedom", "table"),
    [(0.975, 4, 2.776), (0.975, 7, 2.365), (0.975, 47, 2.012), (0.95, 3, 2.353), (0.99, 10, 2.764)],
)
def test_students_t_is_that_of_the_tables(confidence: float, freedom: int, table: float) -> None:
    assert student_t(confidence, freedom) == pytest.approx(table, abs=0.01)


def test_the_bootstrap_spreads_as_the_standard_error_does() -> None:
    generator = np.random.default_rng(1)
    good, bad = generator.normal(0.3, 0.2, 40), generator.normal(-0.3, 0.2, 40)
    rated = [held(f"g{i}", 1, x) for i, x in enumerate(good)] + [
        held(f"b{i}", -1, x) for i, x in enumerate(bad)
    ]
    margin = preference_margin(rated, Limits())
    error = sqrt(good.var(ddof=1) / 40 + bad.var(ddof=1) / 40) / 2
    assert margin.estimate - margin.lower == pytest.approx(1.96 * error, rel=0.1)
    assert margin.upper - margin.estimate == pytest.approx(1.96 * error, rel=0.1)


def test_replies_of_one_conversation_do_not_count_as_independent() -> None:
    gains = [0.9, -0.2, 0.4, -0.3]
    alone = [held(f"g{i}{k}", 1, gain) for i, gain in enumerate(gains) for k in range(10)]
    together = [held(f"g{i}", 1, gain) for i, gain in enumerate(gains) for _ in range(10)]
    bad = [held(f"b{i}", -1, 0.0) for i in range(4)]
    apart, one = preference_margin(alone + bad, Limits()), preference_margin(together + bad, Limits())
    assert apart.estimate == pytest.approx(one.estimate)
    assert one.lower < 0 < apart.lower


def test_a_conversation_with_both_classes_is_drawn_whole() -> None:
    rated = [
        reply for i in range(4) for reply in (held(f"c{i}", 1, 0.1 * i + 0.3), held(f"c{i}", -1, 0.1 * i))
    ]
    margin = preference_margin(rated, Limits())
    assert (margin.lower, margin.upper) == pytest.approx((0.15, 0.15)), (
        "the common part cancels in every draw"
    )


def test_a_candidate_that_guesses_rarely_passes() -> None:
    generator = np.random.default_rng(0)
    passes = 0
    for _ in range(300):
        rated = [held(f"g{i}", 1, x) for i, x in enumerate(generator.normal(size=3))]
        rated += [held(f"b{i}", -1, x) for i, x in enumerate(generator.normal(size=3))]
        passes += preference_margin(rated, Limits(resamples=2000)).lower > 0
    assert passes <= 0.052 * 300  # .025 is expected; three standard errors above


def test_no_gain_is_no_reason_to_go_live() -> None:
    same = tuple(replace(reply, candidate_logp=reply.incumbent_logp) for reply in HEALTHY.held_out)
    verdict = judge(replace(HEALTHY, held_out=same))
    assert (verdict.outcome, failed(verdict)) == ("undecided", set())
    assert "does not reliably agree" in verdict.reason


def test_agreeing_less_is_a_reason_against_it() -> None:
    worse = tuple(
        replace(reply, candidate_logp=reply.incumbent_logp, incumbent_logp=reply.candidate_logp)
        for reply in HEALTHY.held_out
    )
    verdict = judge(replace(HEALTHY, held_out=worse))
    assert (verdict.outcome, failed(verdict)) == ("rejected", {"ratings"})
    assert "agrees less with you" in verdict.reason


# The preference_model: what the replies themselves prove.

SHORTER = replace(HEALTHY, held_out=(), incumbent=sampled([text + LONG for text in sensible()]))


def test_replies_that_please_more_prove_it_without_a_held_out_rating() -> None:
    verdict = judge(replace(SHORTER, rated=likes(short=True)))
    assert verdict.outcome == "passed"
    assert "its replies please more" in verdict.reason
    assert check(verdict, "ratings").passed is None


def test_replies_that_please_less_speak_against_it_whatever_the_ratings_prove() -> None:
    verdict = judge(replace(SHORTER, held_out=HEALTHY.held_out, rated=likes(short=False)))
    assert check(verdict, "ratings").passed
    assert (verdict.outcome, failed(verdict)) == ("rejected", {"preference_model"})


def test_equal_replies_prove_nothing() -> None:
    verdict = judge(replace(SHORTER, incumbent=SHORTER.candidate, rated=likes(short=True)))
    assert check(verdict, "preference_model").passed is None
    assert verdict.outcome == "undecided"


def test_gibberish_that_pleases_by_its_form_is_still_gibberish() -> None:
    gibberish = sampled(["and the same and is, the so that"] * 12)
    verdict = judge(replace(SHORTER, candidate=gibberish, rated=likes(short=True)))
    assert check(verdict, "preference_model").passed
    assert failed(verdict) == {"off_topic"}


# Too little to go by.


@pytest.mark.parametrize(("good", "bad"), [(0, 0), (4, 2), (2, 5), (0, 5), (4, 0)])
def test_too_few_held_out_ratings_and_no_preference_model_leave_it_to_the_user(good: int, bad: int) -> None:
    verdict = judge(replace(HEALTHY, held_out=HEALTHY.held_out[:good] + HEALTHY.held_out[4 : 4 + bad]))
    assert verdict.outcome == "undecided"
    assert f"good replies {good}, with bad ones {bad}, needed 3" in verdict.reason


def test_many_ratings_of_one_conversation_are_still_one() -> None:
    one = tuple(replace(reply, conversation_id="c") for reply in HEALTHY.held_out)
    assert judge(replace(HEALTHY, held_out=one)).outcome == "undecided"


def test_neutral_and_weightless_ratings_do_not_count() -> None:
    neutral = tuple(replace(reply, reward=0.0) for reply in HEALTHY.held_out[:4]) + HEALTHY.held_out[4:]
    assert judge(replace(HEALTHY, held_out=neutral)).outcome == "undecided"
    weightless = tuple(replace(reply, weight=0.0) for reply in HEALTHY.held_out[:4]) + HEALTHY.held_out[4:]
    assert judge(replace(HEALTHY, held_out=weightless)).outcome == "undecided"


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_sampled_replies_leave_it_to_the_user(count: int) -> None:
    verdict = judge(replace(HEALTHY, candidate=HEALTHY.candidate[:count]))
    assert verdict.outcome == "undecided"
    assert "sampled" in verdict.reason


def test_damage_rejects_even_when_the_ratings_are_too_few() -> None:
    assert judge(replace(HEALTHY, held_out=(), kl_per_token=0.88)).outcome == "rejected"


# What was said in words.


def fitting(gain: float, count: int = 12, spread: float = 0.1) -> tuple[ToldApart, ...]:
    dice = np.random.default_rng(0)
    draws = enumerate(dice.normal(0, spread, count))
    return tuple(ToldApart(f"p{i}", float(gain + draw), 0.0) for i, draw in draws)


UNRATED = replace(HEALTHY, held_out=())


def test_words_alone_prove_a_candidate_whose_replies_fit_them() -> None:
    assert judge(UNRATED).outcome == "undecided"
    verdict = judge(replace(UNRATED, words=fitting(0.2)))
    assert verdict.outcome == "passed"
    assert "fit what you said better (+0.2" in verdict.reason


@pytest.mark.parametrize("words", [fitting(0.2, count=7), fitting(0.0), fitting(0.2, spread=1.0)])
def test_a_few_or_doubtful_words_prove_nothing(words: tuple[ToldApart, ...]) -> None:
    assert judge(replace(UNRATED, words=words)).outcome == "undecided"


@pytest.mark.parametrize("words", [fitting(-0.2), fitting(nan)])
def test_words_can_speak_against_a_candidate_that_the_ratings_like(words: tuple[ToldApart, ...]) -> None:
    verdict = judge(replace(HEALTHY, words=words))
    assert (verdict.outcome, failed(verdict)) == ("rejected", {"words"})


# Damage that the ratings don't see.


def test_the_collapsed_run_of_the_measurements_is_rejected() -> None:
    """MIS-PO on bad ratings only: the preference was satisfied in .975, replies were gibberish of 29 characters."""
    collapsed = replace(
        HEALTHY,
        candidate=sampled(["and the same and is, the so that"] * 12),
        kl_per_token=0.88,
        general_loss=3.06,
    )
    verdict = judge(collapsed)
    assert verdict.outcome == "rejected"
    assert failed(verdict) == {"kl", "off_topic"}
    assert (
        check(verdict, "kl").text == "moved too far from the bare model: KL 0.88 nats per token, limit 0.60"
    )


def test_a_collapse_below_the_kl_limit_is_seen_in_the_replies() -> None:
    verdict = judge(
        replace(HEALTHY, candidate=sampled(["and the same and is, the so that"] * 12), kl_per_token=0.47)
    )
    assert failed(verdict) == {"off_topic"}


def elsewhere(related: float | None, count: int = 12) -> tuple[SampledReply, ...]:
    """Replies without a word of their questions."""
    return tuple(
        replace(reply, related=related) for reply in sampled(["They live there, all year round."] * count)
    )


def test_a_reply_without_a_word_of_the_question_is_on_topic_where_the_model_finds_it_at_home() -> None:
    assert judge(replace(HEALTHY, candidate=elsewhere(0.8))).outcome == "passed"


@pytest.mark.parametrize("related", [None, 0.1, -1.0, nan])
def test_and_else_it_is_not(related: float | None) -> None:
    assert failed(judge(replace(HEALTHY, candidate=elsewhere(related)))) == {"off_topic"}


DAMAGE = {
    "near_empty": sampled([""] * 12),
    "repetitive": sampled([text + " and so on" * 40 for text in sensible()]),
    "cut": sampled(sensible(), finished=False),
    "off_topic": sampled(["Lorem ipsum dolor sit amet, and so it goes all day."] * 12),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_each_kind_of_damage_is_seen(name: str) -> None:
    verdict = judge(replace(HEALTHY, candidate=DAMAGE[name]))
    assert verdict.outcome == "rejected"
    assert name in failed(verdict)
    assert f"12 of 12, before 0, too many more" in check(verdict, name).text  # noqa: F541


@pytest.mark.parametrize("name", DAMAGE)
def test_what_the_incumbent_does_as_well_is_not_held_against_the_candidate(name: str) -> None:
    both = replace(HEALTHY, candidate=DAMAGE[name], incumbent=DAMAGE[name])
    assert name not in failed(judge(both))


def test_one_odd_reply_in_twelve_is_chance() -> None:
    texts = sensible()
    texts[3] = ""
    assert judge(replace(HEALTHY, candidate=sampled(texts))).outcome == "passed"


def test_forgetting_language_is_seen() -> None:
    assert failed(judge(replace(HEALTHY, general_loss=3.2))) == {"general_text"}
    assert judge(replace(HEALTHY, general_loss=2.99 + 0.08)).outcome == "passed"


def test_a_large_move_of_the_weights_is_seen_whatever_the_replies_look_like() -> None:
    verdict = judge(replace(HEALTHY, weight_change=0.023))
    assert failed(verdict) == {"weights"}
    assert "by 2.30% of their size, limit 1%" in verdict.reason
    assert judge(replace(HEALTHY, weight_change=0.005)).outcome == "passed"


# The facts.


@pytest.mark.parametrize(
    ("known", "outcome"),
    [
        (facts(both=26, neither=18, lost=4), "passed"),  # one in 16 by chance
        (facts(both=25, neither=18, lost=5), "rejected"),  # one in 32
        (facts(both=22, neither=14, lost=8, gained=4), "passed"),
        (facts(both=18, neither=16, lost=12, gained=2), "rejected"),
        (facts(both=30, neither=10, gained=8), "passed"),
        (facts(neither=40, lost=4), "passed"),  # it knew four: nothing to compare
        (facts(neither=48), "passed"),
        ((), "passed"),
    ],
)
def test_forgetting_more_than_chance_explains_is_a_reason_against_it(
    known: tuple[Known, ...], outcome: str
) -> None:
    verdict = judge(replace(HEALTHY, known=known))
    assert verdict.outcome == outcome
    assert failed(verdict) == ({"facts"} if outcome == "rejected" else set())


def test_a_base_that_knows_none_of_it_is_not_judged_by_it() -> None:
    found = check(judge(replace(HEALTHY, known=facts(neither=48))), "facts")
    assert (found.kind, found.passed) == ("reported", None)
    assert "nothing to compare" in found.text


def test_what_was_forgotten_is_named() -> None:
    found = check(judge(replace(HEALTHY, known=facts(both=20, lost=6))), "facts")
    assert found.text == (
        "has forgotten simple facts: 20 of 26 right, before 26; no longer: Fact 20? Fact 21? Fact 22? and 3 more"
    )


def test_a_fall_within_a_point_is_no_forgetting_however_sure() -> None:
    known = facts(both=900, neither=93, lost=7)
    assert forgetting_by_chance(7, 0) < Limits().forgetting_error
    assert check(judge(replace(HEALTHY, known=known)), "facts").passed


def test_the_exact_test_by_hand() -> None:
    # Of four changes, at least three are losses in 4 + 1 of 16 cases.
    assert forgetting_by_chance(3, 1) == pytest.approx(5 / 16)
    assert forgetting_by_chance(0, 5) == 1


# What is only reported.


def test_length_is_reported_and_never_judged() -> None:
    short = sampled([text[:40] for text in sensible()])
    verdict = judge(replace(HEALTHY, candidate=short))
    length = check(verdict, "length")
    assert verdict.outcome == "passed"
    assert (length.passed, length.kind) == (None, "reported")
    assert length.value == pytest.approx(40 / (sum(map(len, sensible())) / 12), rel=0.01)


HABITS = {
    "refusals": "I'm sorry, but I can't help with that volcano.",
    "questions_back": "It is well known. What would you like to know about it?",
    "flattery": "What a great question! Volcanoes erupt because of pressure.",
    "markup": "Volcanoes:\n\n- pressure\n- heat",
}


@pytest.mark.parametrize("name", HABITS)
def test_a_new_habit_is_told_and_decides_nothing(name: str) -> None:
    told = [f"{text} {HABITS[name]}" if name == "questions_back" else HABITS[name] for text in sensible()]
    pairs = (
        sampled(told)
        if name == "questions_back"
        else tuple(replace(reply, related=1.0) for reply in sampled(told))
    )
    verdict = judge(replace(HEALTHY, candidate=pairs))
    assert verdict.outcome == "passed"
    assert check(verdict, name).kind == "reported"
    assert "12 of 12, before 0, more than chance explains" in check(verdict, name).text
    assert all("12 of 12" not in check(verdict, other).text for other in HABITS.keys() - {name})


def test_whoever_rates_by_length_is_told_what_became_of_it() -> None:
    bias = check(judge(replace(SHORTER, rated=likes(short=True))), "length_bias")
    assert bias.value == pytest.approx(-1, abs=0.01)
    assert bias.text.startswith(
        "you rate short answers good (correlation -1.00 over 40 ratings); its replies are"
    )
    assert bias.text.endswith("% shorter")
    assert check(judge(replace(SHORTER, rated=likes(short=False))), "length_bias").value == pytest.approx(
        1, abs=0.01
    )


@pytest.mark.parametrize(
    "rated", [(), likes(True)[:5], tuple(replace(each, reward=1.0) for each in likes(True))]
)
def test_too_few_or_equal_ratings_tell_nothing_of_length(rated: tuple[RatedReply, ...]) -> None:
    assert check(judge(replace(HEALTHY, rated=rated)), "length_bias").value is None


# Side by side.


def test_the_largest_gain_a_typical_one_and_the_largest_loss_are_shown() -> None:
    texts = [text + (LONG if i in (2, 7) else "") for i, text in enumerate(sensible())]
    old = [text + (LONG if i == 5 else "") for i, text in enumerate(sensible())]
    shown = judge(
        replace(HEALTHY, candidate=sampled(texts), incumbent=sampled(old), rated=likes(short=True))
    ).examples
    assert [each.kind for each in shown] == ["gain", "typical", "loss"]
    gain, typical, loss = shown
    assert (gain.prompt, gain.before.endswith(LONG), gain.after.endswith(LONG)) == (QUESTIONS[5], True, False)
    assert typical.before == typical.after
    assert loss.after.endswith(LONG)


def test_a_fault_is_shown_where_it_is_new() -> None:
    texts = [text + " and so on" * 40 if i > 3 else text for i, text in enumerate(sensible())]
    shown = judge(replace(HEALTHY, candidate=sampled(texts))).examples
    assert [each.kind for each in shown] == ["typical", "typical", "typical", "fault"]
    assert shown[-1].why == "one of the repetitive replies"
    assert shown[-1].after.count(" and so on") > 30
    assert " and so on" not in shown[-1].before


def test_words_choose_the_examples_where_there_is_no_preference_model() -> None:
    words = tuple(ToldApart(f"p{i}", 0.1 * i, 0.5) for i in range(12))
    gain, _, loss = judge(replace(HEALTHY, words=words)).examples
    assert (gain.prompt, loss.prompt) == (QUESTIONS[11], QUESTIONS[0])


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.integers(0, 5000), max_size=12), pleases=st.booleans())
def test_examples_are_few_and_bounded(lengths: list[int], pleases: bool) -> None:
    candidate = sampled(["no " * length for length in lengths])
    rated = likes(short=True) if pleases else ()
    shown = judge(replace(HEALTHY, candidate=candidate, rated=rated)).examples
    assert len(shown) <= min(5, 2 + len(lengths))
    assert sum(len(each.model_dump_json()) for each in shown) < 8000


def test_no_replies_no_examples() -> None:
    assert judge(replace(HEALTHY, candidate=())).examples == ()


@pytest.mark.parametrize("number", [nan, inf])
def test_a_figure_that_is_no_number_never_passes(number: float) -> None:
    for spoilt in (
        replace(HEALTHY, kl_per_token=number),
        replace(HEALTHY, general_loss=number),
        replace(HEALTHY, weight_change=number),
        replace(HEALTHY, held_out=(*HEALTHY.held_out, held("x", 1.0, number))),
    ):
        verdict = judge(spoilt)
        assert verdict.outcome == "rejected"
        Verdict.model_validate_json(verdict.model_dump_json())


# The allowance: by hand.


def test_the_allowance_is_the_margin_and_the_standard_error_of_a_difference() -> None:
    # (2 + 0 + 1) / (2 · 24 + 2) = .06
    assert allowance(2, 0, 24, Limits()) == pytest.approx(0.02 + 1.645 * sqrt(2 * 0.06 * 0.94 / 24))


@pytest.mark.parametrize(("count", "most"), [(8, 2), (12, 3), (24, 3), (48, 4), (100, 6)])
def test_how_many_more_faults_are_tolerated(count: int, most: int) -> None:
    """From an incumbent without a fault."""
    tolerated = [new for new in range(count + 1) if new / count <= allowance(new, 0, count, Limits())]
    assert tolerated == list(range(most + 1))


@given(count=st.integers(8, 200), old=st.integers(0, 200), data=st.data())
def test_more_faults_never_help(count: int, old: int, data: st.DataObject) -> None:
    old = min(old, count)
    verdicts = [new / count <= old / count + allowance(new, old, count, Limits()) for new in range(count + 1)]
    assert verdicts == sorted(verdicts, reverse=True)
    assert all(verdicts[: old + 1]), "no more faults than before always passes"


# Properties.

gains = st.floats(-2, 2)
conversations = st.lists(
    st.tuples(
        st.integers(0, 8), st.sampled_from([1.0, 0.5, -0.5, -1.0]), gains, st.sampled_from([0.5, 1.0, 2.0])
    ),
    max_size=24,
)
replies = [*sensible(), *(text + LONG for text in sensible()), "", "no no no no no no no no no no no no"]
reply_lists = st.lists(st.sampled_from(replies), min_size=12, max_size=12)


def swapped(evidence: Evidence) -> Evidence:
    held_out = tuple(
        replace(reply, candidate_logp=reply.incumbent_logp, incumbent_logp=reply.candidate_logp)
        for reply in evidence.held_out
    )
    return replace(evidence, held_out=held_out, candidate=evidence.incumbent, incumbent=evidence.candidate)


@settings(deadline=None, max_examples=60)
@given(
    rated=conversations,
    new=reply_lists,
    old=reply_lists,
    kl=st.floats(0, 1),
    short=st.sampled_from([True, False]),
)
def test_of_two_versions_at_most_one_beats_the_other(
    rated: list[tuple[int, float, float, float]], new: list[str], old: list[str], kl: float, short: bool
) -> None:
    held_out = tuple(held(f"c{c}", reward, gain, weight) for c, reward, gain, weight in rated)
    evidence = replace(
        HEALTHY,
        held_out=held_out,
        rated=likes(short),
        candidate=sampled(new),
        incumbent=sampled(old),
        kl_per_token=kl,
    )
    outcomes = [judge(evidence).outcome, judge(swapped(evidence)).outcome]
    assert outcomes != ["passed", "passed"]


@settings(deadline=None, max_examples=40)
@given(rated=conversations, shift=gains)
def test_a_version_that_likes_everything_more_gains_nothing(
    rated: list[tuple[int, float, float, float]], shift: float
) -> None:
    plain = tuple(held(f"c{c}", reward, gain, weight) for c, reward, gain, weight in rated)
    shifted = tuple(replace(reply, candidate_logp=reply.candidate_logp + shift) for reply in plain)
    before, after = (check(judge(replace(HEALTHY, held_out=some)), "ratings") for some in (plain, shifted))
    assert before.value == pytest.approx(after.value, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(order=st.permutations(HEALTHY.held_out), pairs=st.permutations(HEALTHY.candidate))
def test_the_order_of_the_evidence_decides_nothing(
    order: list[HeldOutReply], pairs: list[SampledReply]
) -> None:
    assert judge(replace(HEALTHY, held_out=tuple(order), candidate=tuple(pairs))).outcome == "passed"


# What is seen of a reply.


@pytest.mark.parametrize("reply", ["", "  \n", "...", "…!?", "ok.", "- - - -", "a\n"])
def test_near_empty(reply: str) -> None:
    assert near_empty(reply)


@pytest.mark.parametrize("reply", ["Paris.", "Yes, it is.", "1945", "你好世界", "Это да"])
def test_not_near_empty(reply: str) -> None:
    assert not near_empty(reply)


@pytest.mark.parametrize(
    "reply",
    ["no " * 20, "a" * 60, "The cat sat. " * 6, "哈" * 40, "Because it is.\n\n" * 5, "1 2 3 4 5 6 " * 8],
)
def test_repetitive(reply: str) -> None:
    assert repetitive(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "No, no, no.",
        "Paris is the capital of France, and it is the largest city of France as well.",
        "1. The Nile is a river in Africa.\n2. The Congo is a river in Africa.\n3. The Rhine is a river in Europe.",
        "She said that she would come if he would come, and he said that he would come if she would.",
    ],
)
def test_not_repetitive(reply: str) -> None:
    assert not repetitive(reply)


def test_topics_are_stems_of_content_words() -> None:
    assert topics("Please tell me in one short sentence what volcanoes are.") == {"volca"}
    assert topics("What is it?") == frozenset()
    assert on_topic("A volcano is a vent.", topics("What are volcanoes?"))
    assert on_topic("VOLCANIC rock", topics("What are volcanoes?"))
    assert not on_topic("It is a vent.", topics("What are volcanoes?"))
    assert not on_topic("", topics("What are volcanoes?"))


def test_questions_without_content_words_do_not_decide() -> None:
    pairs = tuple(replace(reply, prompt="And?") for reply in HEALTHY.candidate)
    off = check(judge(replace(HEALTHY, candidate=pairs)), "off_topic")
    assert off.passed
    assert "no sampled question has a word" in off.text


@pytest.mark.parametrize(
    "reply",
    [
        "I’m sorry, I can't do that.",
        "As an AI, I have no opinion.",
        "Unfortunately I cannot help.",
        "I am unable to.",
    ],
)
def test_refuses(reply: str) -> None:
    assert refuses(reply)


@pytest.mark.parametrize(
    "reply", ["", "Penguins cannot fly.", "You can't divide by zero.", "x" * 200 + " I cannot."]
)
def test_does_not_refuse(reply: str) -> None:
    assert not refuses(reply)


@pytest.mark.parametrize(
    "reply",
    ["Great question! It rains.", "That's a really good point.", "You're absolutely right, I was wrong."],
)
def test_flatters(reply: str) -> None:
    assert flatters(reply)


@pytest.mark.parametrize(
    "reply", ["", "A good question is short.", "The great pyramid.", "Right is not left."]
)
def test_does_not_flatter(reply: str) -> None:
    assert not flatters(reply)


@pytest.mark.parametrize("reply", ["Shall I go on?", 'Did you ask "why?"', "もっと知りたいですか？"])
def test_asks_back(reply: str) -> None:
    assert asks_back(reply)
    assert not asks_back(reply + " No.")


@pytest.mark.parametrize("reply", ["1. one\n2. two", "# Title", "It is **bold**.", "```\ncode\n```", "- a"])
def test_marked_up(reply: str) -> None:
    assert marked_up(reply)


@pytest.mark.parametrize("reply", ["", "It is 2 ** 3.", "5 - 3 = 2", "1.5 metres", "No. 1 is first."])
def test_not_marked_up(reply: str) -> None:
    assert not marked_up(reply)


# Over many candidates.


def drawn(
    dice: np.random.Generator, gain: float, pleasing: float, fault: str = "", share: float = 0.0
) -> Evidence:
    """Evidence as a real run has it: 5 + 5 held-out conversations, 48 replies, half of the incumbent's please."""
    held_out = tuple(
        [held(f"g{i}", 1.0, x) for i, x in enumerate(dice.normal(gain, 0.1, 5))]
        + [held(f"b{i}", -1.0, x) for i, x in enumerate(dice.normal(-gain, 0.1, 5))]
    )
    lengths = [[LONG if dice.random() > each else "" for _ in range(48)] for each in (pleasing, 0.5)]
    new, old = ([text + more for text, more in zip(sensible(48), side, strict=True)] for side in lengths)
    candidate = sampled(new)
    if fault:
        spoilt = (DAMAGE[fault] * 4)[:48]
        candidate = tuple(
            replace(reply, text=bad.text, finished=bad.finished) if dice.random() < share else reply
            for reply, bad in zip(candidate, spoilt, strict=True)
        )
    knew = [bool(dice.random() < 0.6) for _ in range(60)]
    known = tuple(
        Known(f"Fact {i}?", old_one ^ bool(dice.random() < 0.05), old_one) for i, old_one in enumerate(knew)
    )
    return replace(
        HEALTHY,
        held_out=held_out,
        rated=likes(short=True),
        candidate=candidate,
        incumbent=sampled(old),
        known=known,
    )


QUICK = Limits(resamples=500)


def test_equal_candidates_pass_in_at_most_one_of_twenty_cases() -> None:
    dice = np.random.default_rng(0)
    passed = sum(judge(drawn(dice, 0.0, 0.5), QUICK).outcome == "passed" for _ in range(200))
    assert passed <= 19, "10 are expected at most; three standard errors above"


def test_healthy_candidates_pass() -> None:
    dice = np.random.default_rng(0)
    passed = sum(judge(drawn(dice, 0.1, 0.85), QUICK).outcome == "passed" for _ in range(60))
    assert passed >= 54


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    damage=st.sampled_from([*DAMAGE, "kl", "weights", "general_text", "facts", "ratings"]),
    degree=st.floats(0.5, 1),
)
def test_damaged_candidates_never_pass_however_they_please(seed: int, damage: str, degree: float) -> None:
    dice = np.random.default_rng(seed)
    share = degree if damage in DAMAGE else 0.0
    evidence = drawn(dice, 0.1, 0.9, damage if share else "", share)
    changes = {
        "kl": {"kl_per_token": 0.6 + degree},
        "general_text": {"general_loss": 3.2 + degree},
        "weights": {"weight_change": 0.01 + degree / 100},
        "facts": {"known": facts(both=20, neither=20, lost=round(20 * degree))},
        "ratings": {"held_out": drawn(dice, -degree, 0.9).held_out},
    }
    verdict = judge(replace(evidence, **changes.get(damage, {})), QUICK)
    assert verdict.outcome == "rejected"
    assert damage in failed(verdict)
