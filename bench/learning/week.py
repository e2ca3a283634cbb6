"""A simulated week: every day a user rates some answers, and burnish learns once. Do grades rise, and does length stay?

``python -m bench.learning.week [--arm ARM] [--wish WISH] [--days N] [--ratings N] [--seed N]`` prints a row a day: the
mean grade of new answers (1 to 5), the share that pleases, their length and how many are on topic. The user gives
grades, or with ``--arm auto`` thumbs. The gate decides what goes live, as in daily use. Half an hour on two idle cores.
Exits 1 unless the last day's grades are higher than the first's (p < .05) and the length stays within a quarter of the
first day's.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from bench.learning.arms import ARMS, Arm
from bench.learning.chance import by_chance
from bench.learning.learn import learn
from bench.learning.preferences import PREFERENCES, Preference
from bench.learning.questions import PROMPTS
from bench.learning.user import User
from burnish.parts.desktop.demo.running import burnish
from burnish.parts.desktop.demo.user import AnsweredQuestion, summarise

MEASURED = 40
"""Questions that are asked every day and never rated."""
CERTAIN = 0.05
LENGTH_STAYS = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", choices=("auto", "auto_grades"), default="auto_grades")
    # Its grades hardly depend on length: over 64 answers of the base model r = .03 (of its thumbs .22).
    parser.add_argument("--wish", choices=PREFERENCES, default="hedged")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--ratings", type=int, default=24, help="a day")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    arm, wish = ARMS[given.arm], PREFERENCES[given.wish]
    with tempfile.TemporaryDirectory(prefix="burnish-week-") as folder:
        settings = {"BURNISH_TRAIN__SCHEDULE": "manual", "BURNISH_TRAIN__SEED": str(given.seed)}
        with burnish(Path(folder), settings) as url, User(url, wish) as user:
            first, last = live(url, user, wish, arm, given.days, given.ratings, given.seed)
    sys.exit(not holds(first, last, wish))


def live(
    url: str, user: User, wish: Preference, arm: Arm, days: int, ratings: int, seed: int
) -> tuple[list[AnsweredQuestion], list[AnsweredQuestion]]:
    """Rate and learn day by day; returns the measured answers before the first day and after the last."""
    questions = random.Random(seed).sample(PROMPTS, len(PROMPTS))
    measured, rated = questions[:MEASURED], questions[MEASURED:]
    print(
        "| day | grade | pleases | characters | on topic | the day's run |\n|---|---|---|---|---|---|",
        flush=True,
    )
    answers = first = list(user.ask_all(measured, first_seed=0))
    _row(0, answers, wish, "")
    for day in range(1, days + 1):
        start = (day - 1) * ratings % len(rated)
        asked = (rated + rated)[start : start + ratings]
        for answered in user.ask_all(asked, first_seed=1000 * day + seed):
            if arm.grades:
                user.grade(answered, wish.grade(answered.answer, answered.finished))
            else:
                user.rate(answered, answered.satisfies(wish.satisfied))
        outcome = learn(url, overrule=False)["outcome"]
        answers = list(user.ask_all(measured, first_seed=0))
        _row(day, answers, wish, outcome)
    return first, answers


def holds(first: list[AnsweredQuestion], last: list[AnsweredQuestion], wish: Preference) -> bool:
    chance = by_chance(_grades(first, wish), _grades(last, wish))
    lengths = [summarise(answers, wish.satisfied).mean_characters for answers in (first, last)]
    change = lengths[1] / lengths[0] - 1
    print(f"\nlast day against the first: p = {chance:.4f}, length {change:+.0%}")
    return chance < CERTAIN and abs(change) <= LENGTH_STAYS


def _grades(answers: list[AnsweredQuestion], wish: Preference) -> list[int]:
    return [wish.grade(answered.answer, answered.finished) for answered in answers]


def _row(day: int, answers: list[AnsweredQuestion], wish: Preference, outcome: str) -> None:
    summary = summarise(answers, wish.satisfied)
    figures = f"{fmean(_grades(answers, wish)):.2f} | {summary.satisfied:.2f} | {summary.mean_characters:.0f}"
    print(f"| {day} | {figures} | {summary.on_topic:.2f} | {outcome} |", flush=True)


if __name__ == "__main__":
    main()
