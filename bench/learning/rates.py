"""How often the base model pleases each user by chance: what a preference can be taught by."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.learning.measure import Say
from bench.learning.preferences import PREFERENCES, Preference
from bench.learning.questions import PROMPTS
from bench.learning.user import User
from burnish.parts.desktop.demo.running import burnish
from burnish.parts.desktop.demo.user import AnsweredQuestion, summarise

QUESTIONS = 120
SEED = 0


@dataclass(frozen=True, slots=True)
class Rate:
    """A preference and the share of the base model's answers that satisfy; its standard error is .05 at most."""

    preference: str
    wants: str
    program: str
    """What the users' program asks for."""
    satisfied: float
    joint: float
    """Satisfied and on topic."""


def rates(names: Sequence[str], scratch: Path, settings: Mapping[str, str], say: Say) -> list[Rate]:
    """Ask the questions once a program, and count what pleases whom. Raises DidNotStart."""
    wanted = [PREFERENCES[name] for name in names]
    questions = random.Random(SEED).sample(PROMPTS, QUESTIONS)
    scratch.mkdir(parents=True, exist_ok=True)
    answers: dict[tuple[str | None, int], list[AnsweredQuestion]] = {}
    with burnish(scratch, dict(settings) | {"BURNISH_TRAIN__ENABLED": "false"}) as url:
        for preference in wanted:
            program = (preference.system, preference.max_tokens)
            if program not in answers:
                say(f"asking {QUESTIONS} questions, {_spoken(preference)}")
                with User(url, preference) as user:
                    answers[program] = list(user.ask_all(questions, first_seed=0))
    return [_rate(each, answers[each.system, each.max_tokens]) for each in wanted]


def _rate(preference: Preference, answers: Sequence[AnsweredQuestion]) -> Rate:
    counted = summarise(answers, preference.satisfied)
    return Rate(preference.name, preference.wants, _spoken(preference), counted.satisfied, counted.joint)


def _spoken(preference: Preference) -> str:
    return f"“{preference.system}”" if preference.system else "nothing"
