"""What burnish reads in the answers of judges, large and small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.parts.judging.answers import finds_nothing, pick, refuses, revision, said
from burnish.parts.judging.judgement import preferred

CLEAR = {
    "A": "A",
    "b": "B",
    "**B**": "B",
    "(A)": "A",
    "A.": "A",
    '"B"': "B",
    "B\n\nReply B is shorter.": "B",
    "Reply A": "A",
    "Answer: B": "B",
    "Final answer: **A**": "A",
    "The better reply is B.": "B",
    "A. A is shorter": "A",
    "Reply B is better because it is short.": "B",
    "Reply A follows the principles better than reply B.": "A",
    "I would choose reply B": "B",
    "Both are short, so…": "equal",
    "Neither.": "equal",
    "They are equal": "equal",
    "Let me see. The second one is friendlier.\n\nAnswer: B": "B",
}
UNCLEAR = ["", "A, B", "A or B", "A/B", "1", "C", "AB", "Bees make honey.", "Tea is a drink made of leaves."]
UNCLEAR += ["A better reply would be shorter.", "Reply A is better. Reply B is better, too."]


@pytest.mark.parametrize(("text", "picked"), CLEAR.items())
def test_a_clear_choice_is_read_whatever_stands_around_it(text: str, picked: str) -> None:
    assert pick(text) == picked
    assert pick(said(f"<think>A? No, B. A!</think>\n{text}")) == picked


@pytest.mark.parametrize("text", UNCLEAR)
def test_what_names_neither_is_no_choice(text: str) -> None:
    assert pick(text) is None


@given(st.text(alphabet=st.sampled_from("AB aeis better.,\n:*()replyor"), max_size=60))
def test_swapping_the_letters_swaps_the_choice(text: str) -> None:
    swapped = {"A": "B", "B": "A", "equal": "equal", None: None}
    if "a" not in text and "b" not in text:  # these are letters of words, too
        assert pick(text.translate(str.maketrans("AB", "BA"))) == swapped[pick(text)]


@given(st.text(max_size=200))
def test_nothing_that_a_model_writes_breaks_the_reading(text: str) -> None:
    assert pick(text) in ("A", "B", "equal", None)
    assert said(said(text)) == said(text)
    assert len(revision(text)) <= len(text)
    assert {refuses(text), finds_nothing(text)} <= {True, False}


def test_only_what_is_preferred_in_both_orders_is_preferred() -> None:
    assert preferred("A", "B") == "reply"
    assert preferred("B", "A") == "revision"
    for picks in (("A", "A"), ("B", "B"), ("A", "equal"), ("equal", "A"), ("equal", "equal")):
        assert preferred(*picks) == "tie"


AROUND = ["{}", "Here is a better reply:\n\n{}", "Sure! Here's the revised version:\n{}", "Revised reply: {}"]
AROUND += ["**Better reply:** {}", "<reply>\n{}\n</reply>", "<reply 0a1b2c3d>\n{}\n</reply 0a1b2c3d>", '"{}"']


@pytest.mark.parametrize("around", AROUND)
def test_a_revision_is_without_what_was_said_around_it(around: str) -> None:
    assert revision(around.format("Tea is a drink.")) == "Tea is a drink."


@pytest.mark.parametrize("text", ['"Tea" means "chai"', "Here is the thing: tea is a drink."])
def test_a_revision_keeps_what_only_looks_like_an_introduction(text: str) -> None:
    assert revision(text) == text


REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I’m very sorry, I cannot judge this.",
    "As an AI language model, I am unable to compare replies.",
    "I cannot assist with that request.",
    "We won't evaluate it",
]
CRITICISM = ["I can see that it is long.", "Sorry is missing: it isn't polite.", "The reply can't be right."]
NOTHING = ["NOTHING", "**Nothing.**", "Nothing goes against a principle.", "None", "No violations."]
SOMETHING = ["It says nothing of tea.", "Nonetheless it is long.", "Not short.", "No source is named."]


def test_a_refusal_is_told_from_criticism_and_nothing_from_something() -> None:
    assert [text for text in (*REFUSALS, *CRITICISM) if refuses(text)] == REFUSALS
    assert [text for text in (*NOTHING, *SOMETHING) if finds_nothing(text)] == NOTHING
