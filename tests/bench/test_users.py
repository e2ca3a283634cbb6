"""What pleases whom, and what users say who do not rate as they should."""

from __future__ import annotations

import pytest

from bench.learning.exam import Exam, marked
from bench.learning.general import FACTS
from bench.learning.preferences import PREFERENCES
from bench.learning.stress import stressed
from burnish.parts.desktop.demo.user import AnsweredQuestion, summarise

LONG = "The rain in the mountains is water that falls on them. " * 8


def test_users_rate_otherwise_as_the_stress_says() -> None:
    pleased = [True, False] * 50
    assert stressed("none", pleased, 0) == pleased
    assert stressed("only_good", pleased, 0) == [True, None] * 50
    assert stressed("only_bad", pleased, 0) == [None, False] * 50
    assert stressed("turn", pleased, 0) == [False, True] * 25 + [True, False] * 25
    flipped = sum(
        said != is_pleased for said, is_pleased in zip(stressed("flip20", pleased, 0), pleased, strict=True)
    )
    assert 8 <= flipped <= 32


@pytest.mark.parametrize(
    ("name", "text", "finished", "pleases"),
    [
        ("brief", "Rain is water that falls.", True, True),
        ("brief", "Rain is water that falls", False, False),
        ("brief", "Rain." * 30, True, False),
        ("brief-cold", "", True, False),
        ("at-length", LONG, False, True),
        ("at-length", "Rain is water that falls.", True, False),
        ("second-person", "You can drink it.", True, True),
        ("second-person", "Young people drink it.", True, False),
        ("example", "Water falls, e.g. as rain.", True, True),
        ("example", "It is an exemplary drink.", True, False),
        ("number", "It boils at 100 degrees.", True, True),
        ("number", "It boils at a hundred degrees.", True, False),
        ("two-sentences", "It rains at 3.5 mm. It is wet!", True, True),
        ("two-sentences", "It rains. It is wet.", False, False),
        ("two-sentences", "It rains.", True, False),
        ("two-sentences", "It rains. It is wet. It stops.", True, False),
        ("simple-words", "Rain is water that falls.", True, True),
        ("simple-words", "Rain is atmospheric.", True, False),
        ("simple-words", "", True, False),
        ("no-commas", "Rain is water that falls.", True, True),
        ("no-commas", "Rain, also called water.", True, False),
        ("hedged", "It usually rains.", True, True),
        ("hedged", "It rains in the candle shop.", True, False),
        ("student", "It rains - and how.", True, True),
        ("student", "It **rains**.", True, False),
        ("student", "Rain:\n- water\n- more water", True, False),
        ("student", "So \\boxed{4}", True, False),
        ("assistant-teacher", LONG, True, True),
        ("assistant-teacher", "It rains.", True, False),
        ("teacher", "Great question! It rains.", True, True),
        ("teacher", "It rains.", True, False),
    ],
)
def test_what_pleases_whom(name: str, text: str, finished: bool, pleases: bool) -> None:
    assert PREFERENCES[name].satisfied(text, finished) is pleases


@pytest.mark.parametrize(
    ("name", "text", "finished", "grade"),
    [
        ("brief", "Rain is water that falls.", True, 5),
        ("brief", "Rain is water that falls. " * 4, True, 4),
        ("brief", "Rain is water that falls. " * 6, True, 3),
        ("brief-cold", "Rain is water that falls. " * 10, True, 2),
        ("brief", "Rain is water that falls. " * 20, True, 1),
        ("brief", "Rain is water", False, 1),
        ("brief", "", True, 1),
        ("hedged", "It often rains. It may be cold.", True, 5),
        ("hedged", "It often rains. It is cold.", True, 3),
        ("hedged", "It rains.", True, 1),
        ("hedged", "", True, 1),
        ("number", "It boils at 100 degrees.", True, 4),
        ("number", "It boils.", True, 2),
    ],
)
def test_some_give_grades(name: str, text: str, finished: bool, grade: int) -> None:
    assert PREFERENCES[name].grade(text.strip(), finished) == grade


def test_every_user_has_several_ways_to_say_it() -> None:
    assert all(len(set(preference.comments)) >= 5 for preference in PREFERENCES.values())


def test_an_exam_is_marked_for_the_last_user_and_told_for_all() -> None:
    answers = [
        AnsweredQuestion("What is rain?", "Rain is water.", True, "a"),
        AnsweredQuestion("What is rain?", "You want to know.", True, "b"),
        AnsweredQuestion("What is rain?", LONG, True, "c"),
        AnsweredQuestion("What is rain?", "?", True, "d"),
    ]
    known = [accepted[0] for _, accepted in FACTS[:30]] + ["nothing"] * 30
    figures = marked(
        Exam(answers, known, [LONG, "short"]), [PREFERENCES["second-person"], PREFERENCES["brief"]]
    )
    assert (figures["satisfied"], figures["joint"], figures["on_topic"]) == (0.5, 0.25, 0.5)
    assert (figures["near_empty"], figures["repetitive"], figures["cut"]) == (0.25, 0.25, 0.0)
    assert (figures["general"], figures["at_length"]) == (0.5, 0.5)
    assert figures["users"] == {"second-person": 0.0, "brief": 0.25}
    assert summarise(answers, PREFERENCES["second-person"].satisfied).satisfied == 0.25
