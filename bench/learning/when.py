"""Comments with a condition ("too long when I ask why"): learnt in their case, and nowhere else?

``python -m bench.learning.when [--case NAME]... [--plain] [--seed N]`` prints a row for each case. A user asks many
things, and gives 16 comments, only on long answers to questions of the case. Then the version answers other questions
of the case, and questions outside it, each twice. ``--plain``: the same comments without their condition. A quarter
of an hour a case on one busy core. Exits 1 unless outside the case at most ``SPILL`` more answers are short than
before.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from bench.learning.learn import NothingLearnt, learn
from bench.learning.preferences import PREFERENCES
from bench.learning.questions import PROMPTS
from bench.learning.report import markdown
from bench.learning.user import User
from burnish.parts.desktop.demo.running import burnish
from burnish.parts.desktop.demo.user import SEEDS, AnsweredQuestion, summarise

COMMENTS = 16
UNRATED = 64
"""Questions outside the case that the user only asks, before the others."""
EXAMINED = 20
"""Questions on either side, each asked twice."""
SPILL = 0.1
WISH = PREFERENCES["brief-cold"]
WORDINGS = (
    ("Too long{}.", "when"),
    ("Answer in one short sentence{}, please.", "when"),
    ("{}, be brief.", "if"),
    ("Too wordy{}. Just the answer in a few words.", "if"),
)
HEADER = ["case", "short in it", "short outside", "unrated prompts", "steps", "minutes", "gate"]


@dataclass(frozen=True, slots=True)
class Case:
    pattern: str
    words: str
    """Behind "when" or "if"."""

    def comments(self, *, plain: bool) -> list[str]:
        conditions = ["" if plain else f" {begin} {self.words}" for _, begin in WORDINGS]
        texts = [text.format(condition) for (text, _), condition in zip(WORDINGS, conditions, strict=True)]
        return [text[0].upper() + text[1:] for text in (text.strip(" ,") for text in texts)]


CASES = {
    "why": Case(r"^Why ", "I ask why something is so"),
    "how-to": Case(r"^How (do|can) I ", "I ask how to do something"),
    "what-is": Case(r"^What is (?!.*for\?)", "I ask what something is"),
    "used-for": Case(r"used for|\bfor\?$", "I ask what something is used for"),
    "who-where": Case(r"^(Who|Where) ", "I ask about a person or a place"),
}


@dataclass(frozen=True, slots=True)
class Course:
    """The questions of one case."""

    unrated: Sequence[str]
    taught: Sequence[str]
    inside: Sequence[str]
    outside: Sequence[str]

    @classmethod
    def of(cls, case: Case, seed: int) -> Course:
        questions = random.Random(seed).sample(PROMPTS, len(PROMPTS))
        own = [question for question in questions if re.search(case.pattern, question)]
        others = [question for question in questions if not re.search(case.pattern, question)]
        half = max(len(own) - EXAMINED, len(own) // 2)
        examined, unrated = others[:EXAMINED], others[EXAMINED:][:UNRATED]
        return cls(unrated, own[:half], own[half:][:EXAMINED], examined)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows, spills = [], []
    for name in options.case or CASES:
        row, spill = measured(CASES[name], options.seed, plain=options.plain)
        print(" | ".join([name, *row]), file=sys.stderr, flush=True)
        rows.append([name, *row])
        spills.append(spill)
    print(*markdown(HEADER, rows), sep="\n")
    return int(not options.plain and max(spills) > SPILL)


def measured(case: Case, seed: int, *, plain: bool) -> tuple[list[str], float]:
    """Return the row of a case, and by how much more answers outside it are short. Raises NothingLearnt."""
    course = Course.of(case, seed)
    settings = {"BURNISH_TRAIN__SCHEDULE": "manual", "BURNISH_TRAIN__SEED": str(seed)}
    with (
        tempfile.TemporaryDirectory(prefix="burnish-when-") as folder,
        burnish(Path(folder), settings) as url,
        User(url, WISH) as user,
    ):
        before = [short(user, questions) for questions in (course.inside, course.outside)]
        list(user.ask_all(course.unrated))
        teach(user, course.taught, case.comments(plain=plain), seed)
        began = time.monotonic()
        record = learn(url, overrule=True)
        if "metrics" not in record:
            raise NothingLearnt(record["reason"])
        minutes = (time.monotonic() - began) / 60
        after = [short(user, questions) for questions in (course.inside, course.outside)]
        unrated = sum(path.read_text().count("\n") for path in Path(folder).glob("jobs/*/unrated.jsonl"))
    shares = [f"{first:.2f} → {then:.2f}" for first, then in zip(before, after, strict=True)]
    steps = f"{record['metrics']['steps']:.0f}"
    return [*shares, str(unrated), steps, f"{minutes:.1f}", record["outcome"]], after[1] - before[1]


def short(user: User, questions: Sequence[str]) -> float:
    """Return the share of answers that are short and on topic."""
    answers = list(user.ask_all([*questions, *questions], first_seed=0))
    return summarise(answers, WISH.satisfied).joint


def teach(user: User, questions: Sequence[str], comments: Sequence[str], seed: int) -> None:
    dice, words = random.Random(seed), cycle(comments)
    for answer in bad_answers(user, questions, dice):
        user.rate(answer, good=False, comment=next(words))


def bad_answers(user: User, questions: Sequence[str], dice: random.Random) -> Iterator[AnsweredQuestion]:
    count = 0
    for question in cycle(questions):
        answer = user.ask(question, dice.randrange(SEEDS))
        if not answer.satisfies(WISH.satisfied):
            yield answer
            count += 1
        if count == COMMENTS:
            return


if __name__ == "__main__":
    sys.exit(main())
