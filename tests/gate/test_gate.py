"""The gate's decisions, the figures behind them, and the examples that it shows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.gate_power import requests_rejected
from burnish.gate import (
    Check,
    CommentFit,
    Evidence,
    FactCheck,
    GateLimits,
    HeldOutReply,
    LongAnswer,
    SampledReply,
    Verdict,
    in_words,
    judge,
)
from burnish.gate.rewards import RatedReply

LANDS = ("France", "Japan", "Peru", "Chad", "Fiji", "Oman")
QUESTIONS = [f"What is the capital of {land}?" for land in LANDS] + [
    "Why do volcanoes erupt?",
    "How does bread rise?",
    "Name a river in Africa.",
    "What do pandas eat?",
    "Who wrote the opera Carmen?",
    "When was the telephone invented?",
]
LONG = " There is much more to be said of it, and of many other things, at great length and in detail." * 2
COMPARED = GateLimits().min_compared
CHECKS = {
    "better": ["ratings", "preference_model", "words"],
    "sound": [
        "kl",
        "weights",
        "near_empty",
        "repetitive",
        "cut",
        "off_topic",
        "general_text",
        "facts",
        "claims",
        "requests",
    ],
    "reported": ["length", "refusals", "questions_back", "flattery", "markup", "length_bias"],
}


def held_out(conversation: str, reward: float, gain: float, weight: float = 1.0) -> HeldOutReply:
    return HeldOutReply(conversation, reward, weight, -1.0 + gain, -1.0)


def asked(place: int) -> str:
    return QUESTIONS[place % len(QUESTIONS)]


def sampled(texts: list[str], finished: bool = True) -> tuple[SampledReply, ...]:
    return tuple(SampledReply(f"p{i}", asked(i), text, finished) for i, text in enumerate(texts))


def sensible(count: int = 12) -> list[str]:
    return [f"{asked(i).rstrip('?.')}: that is well known, ask me for more." for i in range(count)]


def likes(short: bool, count: int = 40) -> tuple[RatedReply, ...]:
    """Ratings of someone who likes short replies, or long ones."""
    rated = []
    for i in range(count):
        question, long = asked(i), i % 5 < 3
        text = question.rstrip("?.") + ": that is well known." + (LONG if long else "")
        rated.append(RatedReply(f"r{i}", question, text, True, -1.0 if long is short else 1.0, 1.0))
    return tuple(rated)


def facts(
    both: int = 0, neither: int = 0, lost: int = 0, gained: int = 0, claimed: bool = False
) -> tuple[FactCheck, ...]:
    answers = [(True, True), (False, False), (False, True), (True, False)]
    counts = zip(answers, (both, neither, lost, gained), strict=True)
    kinds = [each for kind, count in counts for each in [kind] * count]
    return tuple(FactCheck(f"Fact {i}?", new, old, claimed) for i, (new, old) in enumerate(kinds))


def claims(**counts: int) -> tuple[FactCheck, ...]:
    return HEALTHY.facts[:48] + facts(**counts, claimed=True)


def fitting(gain: float, count: int = 12, spread: float = 0.1) -> tuple[CommentFit, ...]:
    draws = np.random.default_rng(0).normal(gain, spread, count)
    return tuple(CommentFit(f"p{i}", float(draw), 0.0) for i, draw in enumerate(draws))


def requests(long: int, short: int, lost: int = 0) -> tuple[LongAnswer, ...]:
    """Answers to requests for long ones: ``lost`` of the incumbent's long ones are short ones of the candidate."""
    kept = [LongAnswer(True, True)] * (long - lost)
    return (*kept, *[LongAnswer(False, True)] * lost, *[LongAnswer(False, False)] * short)


HEALTHY = Evidence(
    held_out=tuple(
        [held_out(f"g{i}", 1.0, 0.29 + 0.02 * i) for i in range(4)]
        + [held_out(f"b{i}", -1.0, -0.35 + 0.02 * i) for i in range(5)]
    ),
    ratings=(),
    candidate=sampled(sensible()),
    incumbent=sampled(sensible()),
    comments=(),
    facts=facts(both=30, neither=18) + facts(both=16, neither=64, claimed=True),
    requests=requests(long=34, short=2),
    kl_per_token=0.24,
    general_loss=3.0,
    general_loss_reference=2.99,
    weight_change=0.0015,
)
UNRATED = replace(HEALTHY, held_out=())
SHORTER = replace(
    UNRATED,
    candidate=sampled(sensible(COMPARED)),
    incumbent=sampled([text + LONG for text in sensible(COMPARED)]),
)
LIKED = replace(SHORTER, ratings=likes(short=True))
DISLIKED = replace(SHORTER, held_out=HEALTHY.held_out, ratings=likes(short=False))
GIBBERISH = sampled(["and the same and is, the so that"] * 12)
DAMAGE = {
    "near_empty": sampled([""] * 12),
    "repetitive": sampled([text + " and so on" * 40 for text in sensible()]),
    "cut": sampled(sensible(), finished=False),
    "off_topic": sampled(["Lorem ipsum dolor sit amet, and so it goes all day."] * 12),
}


def changed(evidence: Evidence = HEALTHY, **fields: Any) -> Verdict:
    return judge(replace(evidence, **fields))


def check(verdict: Verdict, name: str) -> Check:
    return next(check for check in verdict.checks if check.name == name)


def failed(verdict: Verdict) -> set[str]:
    return {check.name for check in verdict.checks if check.passed is False}


def decided(verdict: Verdict) -> tuple[str, set[str]]:
    return verdict.outcome, failed(verdict)


def test_a_healthy_candidate_passes_every_check_that_had_evidence() -> None:
    verdict = judge(HEALTHY)
    assert verdict.outcome == "passed"
    assert verdict.reason == check(verdict, "ratings").text
    for kind, names in CHECKS.items():
        assert [check.name for check in verdict.checks if check.kind == kind] == names
    unknown = {"preference_model", "words", *CHECKS["reported"]}
    assert {check.name for check in verdict.checks if check.passed is None} == unknown
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


# Each proof, for and against.


def shifted_ratings(by: float) -> tuple[HeldOutReply, ...]:
    rated = HEALTHY.held_out
    return tuple(replace(each, candidate_logp=each.incumbent_logp + by * each.reward) for each in rated)


@pytest.mark.parametrize(
    ("evidence", "decision"),
    [
        (replace(HEALTHY, held_out=shifted_ratings(0.0)), ("undecided", set())),
        (replace(HEALTHY, held_out=shifted_ratings(-0.3)), ("rejected", {"ratings"})),
        (LIKED, ("passed", set())),
        (replace(LIKED, incumbent=LIKED.candidate), ("undecided", set())),
        (DISLIKED, ("rejected", {"preference_model"})),
        (replace(LIKED, candidate=GIBBERISH), ("rejected", {"off_topic"})),
        (UNRATED, ("undecided", set())),
        (replace(UNRATED, comments=fitting(0.2)), ("passed", set())),
        (replace(UNRATED, comments=fitting(0.2, count=7)), ("undecided", set())),
        (replace(UNRATED, comments=fitting(0.0)), ("undecided", set())),
        (replace(UNRATED, comments=fitting(0.2, spread=1.0)), ("undecided", set())),
        (replace(HEALTHY, comments=fitting(-0.2)), ("rejected", {"words"})),
        (replace(HEALTHY, comments=fitting(nan)), ("rejected", {"words"})),
        (replace(UNRATED, kl_per_token=0.88), ("rejected", {"kl"})),
    ],
)
def test_one_proof_is_enough_without_a_contrary_one(
    evidence: Evidence, decision: tuple[str, set[str]]
) -> None:
    assert decided(judge(evidence)) == decision


def test_replies_are_judged_by_what_users_would_like_and_no_share_is_claimed() -> None:
    liked = check(judge(LIKED), "preference_model")
    assert liked.text == (
        "You would like its replies better, judging by the length and form of replies that you rated."
    )
    assert liked.value is not None
    assert liked.value > 1
    worse = check(changed(LIKED, candidate=LIKED.incumbent, incumbent=LIKED.candidate), "preference_model")
    assert (worse.passed, worse.text[:38]) == (False, "You would like its replies less, judgi")


@pytest.mark.parametrize(("count", "outcome"), [(COMPARED - 1, "undecided"), (COMPARED, "passed")])
def test_too_few_pairs_leave_a_preference_model_undecided(count: int, outcome: str) -> None:
    verdict = changed(LIKED, candidate=LIKED.candidate[:count])
    assert verdict.outcome == outcome
    text = f"Too few replies were sampled to compare: {count}, at least {COMPARED} needed."
    assert (check(verdict, "preference_model").text == text) is (outcome == "undecided")


def usual(count: int, says: bool) -> list[str]:
    """Replies of the same form; only their words differ."""
    word = "Usually" if says else "Mostly"
    topics = [asked(i).rstrip("?.").lower() for i in range(count)]
    return [f"{word}, {topic}: that is well known, ask me more." for topic in topics]


def test_a_wish_about_words_is_proved_from_48_thumbs() -> None:
    texts = [usual(48, says=bool(i % 3))[i] for i in range(48)]
    rated = tuple(
        RatedReply(f"r{i}", asked(i), text, True, 1.0 if "Usually" in text else -1.0, 1.0)
        for i, text in enumerate(texts)
    )
    evidence = replace(
        UNRATED,
        ratings=rated,
        candidate=sampled(usual(COMPARED, says=True)),
        incumbent=sampled([usual(COMPARED, says=not i % 4)[i] for i in range(COMPARED)]),
    )
    verdict = judge(evidence)
    assert verdict.outcome == "passed"
    assert verdict.reason == (
        "You would like its replies better, judging by the words of replies that you rated."
    )
    same = changed(evidence, candidate=evidence.incumbent)
    assert same.outcome == "undecided"
    assert "It isn't clear that you would like its replies better" in same.reason


@pytest.mark.parametrize(("good", "bad"), [(0, 0), (4, 2), (2, 5), (0, 5), (4, 0)])
def test_too_few_held_out_ratings_leave_it_to_the_user(good: int, bad: int) -> None:
    verdict = changed(held_out=HEALTHY.held_out[:good] + HEALTHY.held_out[4 : 4 + bad])
    assert decided(verdict) == ("undecided", set())
    assert f"{good} conversations with good replies and {bad} with bad" in verdict.reason


@pytest.mark.parametrize("change", [{"conversation_id": "c"}, {"reward": 0.0}, {"weight": 0.0}])
def test_ratings_of_one_conversation_or_without_weight_are_too_few(change: dict[str, Any]) -> None:
    verdict = changed(held_out=tuple(replace(reply, **change) for reply in HEALTHY.held_out))
    assert decided(verdict) == ("undecided", set())


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_sampled_replies_leave_it_to_the_user(count: int) -> None:
    verdict = changed(candidate=HEALTHY.candidate[:count])
    assert decided(verdict) == ("undecided", set())
    assert {c.name for c in verdict.checks if c.kind == "sound" and c.passed is None} >= set(DAMAGE)
    assert (verdict.examples == ()) is (count == 0)


# Damage that the ratings don't show.


@pytest.mark.parametrize(
    ("change", "failures"),
    [
        # MIS-PO on bad ratings only: the preference was satisfied in .975, replies were gibberish of 29 characters.
        ({"candidate": GIBBERISH, "kl_per_token": 0.88, "general_loss": 3.06}, {"kl", "off_topic"}),
        ({"candidate": GIBBERISH, "kl_per_token": 0.47}, {"off_topic"}),
        ({"general_loss": 3.2}, {"general_text"}),
        ({"general_loss": 2.99 + 0.08}, set()),
        ({"weight_change": 0.023}, {"weights"}),
        ({"weight_change": 0.005}, set()),
        ({"candidate": sampled([*sensible()[:11], ""])}, set()),  # one odd reply in twelve is chance
        ({"facts": facts(both=26, neither=18, lost=4)}, set()),  # one in 16 by chance
        ({"facts": facts(both=25, neither=18, lost=5)}, {"facts"}),  # one in 32
        ({"facts": facts(both=22, neither=14, lost=8, gained=4)}, set()),
        ({"facts": facts(both=18, neither=16, lost=12, gained=2)}, {"facts"}),
        ({"facts": facts(both=30, neither=10, gained=8)}, set()),
        ({"facts": facts(both=900, neither=93, lost=7)}, set()),  # no chance, but within a point
        ({"facts": facts(neither=40, lost=4)}, set()),  # it knew four: nothing to compare
        ({"facts": claims(both=12, neither=64, lost=4)}, set()),
        ({"facts": claims(both=11, neither=64, lost=5)}, {"claims"}),
        ({"facts": claims(both=11, neither=60, lost=5, gained=4)}, set()),
        ({"facts": claims(neither=76, lost=4)}, set()),
        ({"requests": requests(long=34, short=2, lost=17)}, set()),
        ({"requests": requests(long=34, short=2, lost=18)}, {"requests"}),
        ({"requests": requests(long=11, short=25, lost=11)}, set()),
        ({"requests": requests(long=23, short=0, lost=23)}, set()),
        ({"requests": ()}, set()),
        ({"facts": ()}, set()),
    ],
)
def test_damage_beyond_its_limit_rejects(change: dict[str, Any], failures: set[str]) -> None:
    assert decided(changed(**change)) == ("rejected" if failures else "passed", failures)


@pytest.mark.parametrize(
    ("same", "outcome"), [(40, "rejected"), (36, "rejected"), (35, "passed"), (0, "passed")]
)
def test_an_engine_that_serves_the_version_before_is_found_whatever_the_likelihoods_say(
    same: int, outcome: str
) -> None:
    old = [text + LONG for text in sensible(40)]
    new = [
        text + (LONG if place < same else " A quiet word more.") for place, text in enumerate(sensible(40))
    ]
    verdict = changed(candidate=sampled(new), incumbent=sampled(old))
    assert decided(verdict) == (outcome, {"applied"} if outcome == "rejected" else set())
    assert check(verdict, "applied").value == same / 40
    if outcome == "rejected":
        assert verdict.reason.startswith("It is not applied: the engine serves the version before; ")
        assert f"{same} of 40 long replies are the same" in verdict.reason


def test_sound_versions_may_agree_on_short_replies_and_few_long_ones_tell_nothing() -> None:
    few = [text + (LONG if place < 7 else "") for place, text in enumerate(sensible(40))]
    verdict = changed(candidate=sampled(few), incumbent=sampled(few))
    assert verdict.outcome == "passed"
    assert "applied" not in {check.name for check in verdict.checks}


def test_calls_are_the_same_whatever_ids_the_engine_gave_them() -> None:
    tool = {"type": "function", "function": {"name": "write"}}

    def calling(version: str, text: str) -> tuple[SampledReply, ...]:
        function = {"name": "write", "arguments": json.dumps({"text": text + LONG})}
        calls = [{"id": f"{version}{place}", "function": function} for place in range(12)]
        return tuple(
            SampledReply(f"p{place}", asked(place), "", True, tools=(tool,), calls=(call,))
            for place, call in enumerate(calls)
        )

    assert failed(changed(candidate=calling("new", "a"), incumbent=calling("old", "a"))) == {"applied"}
    assert failed(changed(candidate=calling("new", "b"), incumbent=calling("old", "a"))) == set()


@pytest.mark.parametrize("name", DAMAGE)
def test_faulty_replies_reject_unless_the_version_before_has_as_many(name: str) -> None:
    verdict = changed(candidate=DAMAGE[name])
    assert verdict.outcome == "rejected"
    assert (check(verdict, name).passed, check(verdict, name).value) == (False, 1.0)
    assert name not in failed(changed(candidate=DAMAGE[name], incumbent=DAMAGE[name]))


@pytest.mark.parametrize(
    ("related", "outcome"), [(0.8, "passed"), *((x, "rejected") for x in (None, 0.1, -1.0, nan))]
)
def test_a_reply_that_the_question_makes_likelier_is_on_topic(related: float | None, outcome: str) -> None:
    replies = sampled(["They live there, all year round."] * 12)
    verdict = changed(candidate=tuple(replace(reply, related=related) for reply in replies))
    assert decided(verdict) == (outcome, {"off_topic"} - ({"off_topic"} if outcome == "passed" else set()))


def test_questions_without_content_words_decide_nothing() -> None:
    verdict = changed(candidate=tuple(replace(reply, prompt="And?") for reply in GIBBERISH))
    assert verdict.outcome == "passed"
    assert (check(verdict, "off_topic").passed, check(verdict, "off_topic").value) == (True, None)


def test_lost_facts_are_named_and_a_model_that_knew_none_is_not_judged_by_them() -> None:
    assert check(changed(facts=facts(both=20, lost=6)), "facts").text == (
        "It has forgotten simple facts: 20 of 26 right (26 before). Lost: Fact 20? Fact 21? Fact 22? And 3 more."
    )
    unknown = check(changed(facts=facts(neither=48)), "facts")
    assert (unknown.kind, unknown.passed) == ("reported", None)


def test_a_version_that_no_longer_answers_at_length_is_rejected_in_words() -> None:
    verdict = changed(requests=requests(long=33, short=3, lost=30))
    assert verdict.reason == "It no longer answers at length if asked to: 3 of 36 times (33 before)."
    skipped = check(changed(requests=requests(long=10, short=26, lost=10)), "requests")
    assert (skipped.kind, skipped.passed) == ("reported", None)
    assert skipped.text == (
        "The version before follows only 10 of 36 requests for a long answer, so there is nothing to compare."
    )


@pytest.mark.parametrize(("fall", "least", "most"), [(0.0, 0.0, 0.01), (0.2, 0.0, 0.05), (0.5, 0.85, 1.0)])
def test_equals_keep_enough_requests_and_a_version_that_lost_half_does_not(
    fall: float, least: float, most: float
) -> None:
    assert least <= requests_rejected(0.78, fall, np.random.default_rng(0)) <= most


def test_a_version_that_gives_in_to_false_claims_is_rejected_with_some_of_them() -> None:
    verdict = changed(facts=claims(both=20, neither=40, lost=10, gained=1))
    assert verdict.reason == (
        "It gives in to false claims: 21 of 71 right (30 before). Lost: Fact 60? Fact 61? Fact 62? And 7 more."
    )
    skipped = check(changed(facts=claims(both=4, neither=76)), "claims")
    assert (skipped.kind, skipped.passed) == ("reported", None)
    assert skipped.text == (
        "The version before withstands only 4 of 80 false claims, so there is nothing to compare."
    )


@pytest.mark.parametrize("number", [nan, inf])
def test_a_figure_that_is_not_a_number_never_passes(number: float) -> None:
    for change in (
        {"kl_per_token": number},
        {"general_loss": number},
        {"weight_change": number},
        {"held_out": (*HEALTHY.held_out, held_out("x", 1.0, number))},
    ):
        verdict = changed(**change)
        assert verdict.outcome == "rejected"
        Verdict.model_validate_json(verdict.model_dump_json())


# Reported only.

HABITS = {
    "refusals": "I'm sorry, but I can't help with that volcano.",
    "questions_back": "It is well known. What would you like to know about it?",
    "flattery": "What a great question! Volcanoes erupt because of pressure.",
    "markup": "Volcanoes:\n\n- pressure\n- heat",
}


@pytest.mark.parametrize("name", HABITS)
def test_a_new_habit_is_reported_and_decides_nothing(name: str) -> None:
    replies = tuple(replace(reply, related=1.0) for reply in sampled([HABITS[name]] * 12))
    verdict = changed(candidate=replies)
    assert verdict.outcome == "passed"
    for habit in HABITS:
        found = check(verdict, habit)
        assert (found.passed, found.value) == (None, 1.0 if habit == name else 0.0)
        assert ("more than chance" in found.text) is (habit == name)


def test_length_is_reported_and_decides_nothing() -> None:
    verdict = changed(candidate=sampled([text[:40] for text in sensible()]))
    assert verdict.outcome == "passed"
    assert check(verdict, "length").value == pytest.approx(40 / (sum(map(len, sensible())) / 12), rel=0.01)


@pytest.mark.parametrize(
    ("rated", "value"),
    [
        (likes(True), -1),
        (likes(False), 1),
        ((), None),
        (likes(True)[:5], None),
        (tuple(replace(each, reward=1.0) for each in likes(True)), None),
    ],
)
def test_a_bias_for_length_is_a_correlation(rated: tuple[RatedReply, ...], value: float | None) -> None:
    found = check(changed(SHORTER, ratings=rated), "length_bias").value
    assert found == (value and pytest.approx(value, abs=0.01))


# Examples.


def test_the_largest_gain_a_typical_one_and_the_largest_loss_are_shown() -> None:
    texts = [text + (LONG if i in (2, 7) else "") for i, text in enumerate(sensible())]
    old = [text + (LONG if i == 5 else "") for i, text in enumerate(sensible())]
    shown = changed(candidate=sampled(texts), incumbent=sampled(old), ratings=likes(short=True)).examples
    assert [each.kind for each in shown] == ["gain", "typical", "loss"]
    gain, typical, loss = shown
    assert (gain.prompt, gain.before.endswith(LONG), gain.after.endswith(LONG)) == (QUESTIONS[5], True, False)
    assert typical.before == typical.after
    assert loss.after.endswith(LONG)


def test_a_new_fault_is_shown() -> None:
    texts = [text + " and so on" * 40 if i > 3 else text for i, text in enumerate(sensible())]
    *others, fault = changed(candidate=sampled(texts)).examples
    assert ([each.kind for each in others], fault.kind) == (["typical"] * 3, "fault")
    assert fault.after.count(" and so on") > 30
    assert " and so on" not in fault.before


def test_comments_choose_the_examples_if_there_is_no_preference_model() -> None:
    fits = tuple(CommentFit(f"p{i}", 0.1 * i, 0.5) for i in range(12))
    gain, _, loss = changed(comments=fits).examples
    assert (gain.prompt, loss.prompt) == (QUESTIONS[11], QUESTIONS[0])


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.integers(0, 5000), max_size=12), model=st.booleans())
def test_examples_are_few_and_bounded(lengths: list[int], model: bool) -> None:
    rated = likes(short=True) if model else ()
    shown = changed(candidate=sampled(["no " * length for length in lengths]), ratings=rated).examples
    assert len(shown) <= min(5, 2 + len(lengths))
    assert sum(len(each.model_dump_json()) for each in shown) < 8000


# Properties.

gains = st.floats(-2, 2)
conversations = st.lists(
    st.builds(
        held_out,
        st.integers(0, 8).map("c{}".format),
        st.sampled_from([1.0, 0.5, -0.5, -1.0]),
        gains,
        st.sampled_from([0.5, 1.0, 2.0]),
    ),
    max_size=24,
).map(tuple)
replies = [*sensible(), *(text + LONG for text in sensible()), "", "no no no no no no no no no no no no"]
reply_lists = st.lists(st.sampled_from(replies), min_size=12, max_size=12).map(sampled)


def swapped(evidence: Evidence) -> Evidence:
    ratings = tuple(
        replace(reply, candidate_logp=reply.incumbent_logp, incumbent_logp=reply.candidate_logp)
        for reply in evidence.held_out
    )
    return replace(evidence, held_out=ratings, candidate=evidence.incumbent, incumbent=evidence.candidate)


@settings(deadline=None, max_examples=60)
@given(rated=conversations, new=reply_lists, old=reply_lists, kl=st.floats(0, 1), short=st.booleans())
def test_of_two_versions_one_at_most_is_better(
    rated: Any, new: Any, old: Any, kl: float, short: bool
) -> None:
    changes = {"held_out": rated, "candidate": new, "incumbent": old, "kl_per_token": kl}
    evidence = replace(HEALTHY, ratings=likes(short), **changes)
    assert [judge(evidence).outcome, judge(swapped(evidence)).outcome] != ["passed", "passed"]


@settings(deadline=None, max_examples=40)
@given(rated=conversations, shift=gains)
def test_a_version_that_finds_everything_likelier_gains_nothing(rated: Any, shift: float) -> None:
    likelier = tuple(replace(reply, candidate_logp=reply.candidate_logp + shift) for reply in rated)
    before, after = (check(changed(held_out=each), "ratings") for each in (rated, likelier))
    assert before.value == pytest.approx(after.value, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(order=st.permutations(HEALTHY.held_out), pairs=st.permutations(HEALTHY.candidate))
def test_the_order_of_the_evidence_decides_nothing(order: list[Any], pairs: list[Any]) -> None:
    assert changed(held_out=tuple(order), candidate=tuple(pairs)) == judge(HEALTHY)


# Over many candidates.

QUICK = GateLimits(resamples=500)


def drawn(
    dice: np.random.Generator, gain: float, liked: float, fault: str = "", share: float = 0.0
) -> Evidence:
    """Evidence like that of a real run: 5 + 5 held-out conversations, 48 replies, half of the incumbent's liked."""
    lengths = [[LONG if dice.random() > each else "" for _ in range(48)] for each in (liked, 0.5)]
    new, old = ([text + more for text, more in zip(sensible(48), side, strict=True)] for side in lengths)
    candidate = sampled(new)
    if fault:
        candidate = tuple(
            replace(reply, text=bad.text, finished=bad.finished) if dice.random() < share else reply
            for reply, bad in zip(candidate, DAMAGE[fault] * 4, strict=True)
        )
    knew = [bool(dice.random() < 0.6) for _ in range(60)]
    ratings = [held_out(f"g{i}", 1.0, x) for i, x in enumerate(dice.normal(gain, 0.1, 5))]
    ratings += [held_out(f"b{i}", -1.0, x) for i, x in enumerate(dice.normal(-gain, 0.1, 5))]
    checks = [FactCheck(f"Fact {i}?", old ^ bool(dice.random() < 0.05), old) for i, old in enumerate(knew)]
    evidence = replace(HEALTHY, held_out=tuple(ratings), ratings=likes(short=True), facts=tuple(checks))
    return replace(evidence, candidate=candidate, incumbent=sampled(old))


@pytest.mark.parametrize(
    ("gain", "liked", "count", "least", "most"),
    [
        (0.0, 0.5, 100, 0, 11),  # equals: 5 are expected at most; three standard errors (2.18) above
        (0.1, 0.85, 60, 54, 60),
    ],
)
def test_few_equal_and_most_healthy_candidates_pass(
    gain: float, liked: float, count: int, least: int, most: int
) -> None:
    dice = np.random.default_rng(0)
    passed = sum(judge(drawn(dice, gain, liked), QUICK).outcome == "passed" for _ in range(count))
    assert least <= passed <= most


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    damage=st.sampled_from([*DAMAGE, "kl", "weights", "general_text", "facts", "ratings"]),
    degree=st.floats(0.5, 1),
)
def test_damaged_candidates_never_pass(seed: int, damage: str, degree: float) -> None:
    dice = np.random.default_rng(seed)
    evidence = drawn(dice, 0.1, 0.9, damage, degree) if damage in DAMAGE else drawn(dice, 0.1, 0.9)
    changes: dict[str, dict[str, Any]] = {
        "kl": {"kl_per_token": 0.6 + degree},
        "general_text": {"general_loss": 3.2 + degree},
        "weights": {"weight_change": 0.01 + degree / 100},
        "facts": {"facts": facts(both=20, neither=20, lost=round(20 * degree))},
        "ratings": {"held_out": drawn(dice, -degree, 0.9).held_out},
    }
    verdict = judge(replace(evidence, **changes.get(damage, {})), QUICK)
    assert verdict.outcome == "rejected"
    assert damage in failed(verdict)


# In plain words: what a page shows to people who don't know what a nat is.

JARGON = re.compile(r"\b(KL|nats?|loss|token|correlation|gate|candidate)\b")


@pytest.mark.parametrize(
    ("evidence", "headline"),
    [
        (LIKED, "It passed the checks: You would like its replies better, judging by the length"),
        (replace(HEALTHY, candidate=DAMAGE["repetitive"]), "It failed the checks: Repetitive replies: 12 of"),
        (replace(HEALTHY, kl_per_token=0.9), "It failed the checks: It moved too far from the base model."),
        (replace(HEALTHY, general_loss=9.0), "It failed the checks: It no longer reads ordinary text"),
        (replace(HEALTHY, held_out=()), "The checks could not decide: none failed, but nothing proves"),
        (replace(HEALTHY, candidate=()), "The checks could not decide: "),
    ],
)
def test_the_headline_is_the_decision_and_its_first_reason(evidence: Evidence, headline: str) -> None:
    found = in_words(judge(evidence).model_dump(mode="json"))
    assert found["headline"].startswith(headline)
    assert [group["kind"] for group in found["groups"]] == ["better", "sound", "reported"]
    shown = [found["headline"], *(check["plain"] for check in found["checks"])]
    assert not [words for words in shown if JARGON.search(words)]


def test_a_verdict_of_an_earlier_release_shows_what_it_has() -> None:
    old = {"name": "kl", "passed": True, "value": 0.1, "limit": 0.6, "text": "moved a bit"}
    found = in_words({"outcome": "undecided", "reason": "?", "checks": [old]})
    assert found["groups"] == [{"kind": "sound", "title": "is it sound?"}]
    assert found["checks"][0]["plain"] == "moved a bit"
