"""The exam of a version: held-out questions, facts, and whether it still answers at length when asked to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.learning.general import FACTS, right
from bench.learning.preferences import Preference
from bench.learning.user import User
from burnish.parts.desktop.demo.user import MAX_TOKENS, AnsweredQuestion, summarise

# Enough for a fact.
FACT_TOKENS = 40
AT_LENGTH = "Explain in detail, at length: {}"
LENGTHY_CHARACTERS = 300
"""Beyond this is at length; well within what the tokens of a reply allow."""
ASKED_AT_LENGTH = 48


@dataclass(frozen=True, slots=True)
class Exam:
    """The answers of a version."""

    answers: list[AnsweredQuestion]
    """To the held-out questions, as its users ask them."""
    known: list[str]
    """To the facts, in their order; empty where nobody asked."""
    lengthy: list[str]
    """To those who asked for it at length, without any system message; empty likewise."""


def sit(user: User, held_out: Sequence[str], at_length: Sequence[str]) -> Exam:
    """Ask what is live. Every version is asked the same, with the same dice.

    ``at_length``: the questions to which an answer at length is requested; empty: facts aren't asked for either.
    """
    answers = list(user.ask_all(held_out, first_seed=0))
    if not at_length:
        return Exam(answers, [], [])
    return Exam(
        answers,
        list(user.ask_plainly([question for question, _ in FACTS], FACT_TOKENS)),
        list(user.ask_plainly([AT_LENGTH.format(question) for question in at_length], MAX_TOKENS)),
    )


def marked(exam: Exam, wanted: Sequence[Preference]) -> dict[str, Any]:
    """Return an exam's figures for the last of some users, and how many answers satisfy each of them."""
    return asdict(summarise(exam.answers, wanted[-1].satisfied)) | {
        "general": _share(
            right(answer, accepted)
            for answer, (_, accepted) in zip(exam.known, FACTS, strict=bool(exam.known))
        ),
        "at_length": _share(len(each) > LENGTHY_CHARACTERS for each in exam.lengthy),
        "users": {each.name: summarise(exam.answers, each.satisfied).joint for each in wanted},
    }


def _share(marks: Iterable[bool]) -> float | None:
    """Return the share of what was right; None where nothing was asked."""
    found = list(marks)
    return sum(found) / len(found) if found else None
