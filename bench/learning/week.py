"""A simulated week: every day a user rates some answers, and burnish learns once. Do grades rise, and does length stay?

``python -m bench.learning.week [--wish WISH] [--days N] [--ratings N] [--seed N]`` prints a row a day: the share of new
answers that please, their length and how many are on topic. The gate decides what goes live, as in daily use. Half an
hour on two idle cores. Exits 1 unless the last day pleases more than the first (p < .05) and the length stays within a
quarter of the first day's.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

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
    # Its rule says nothing of length.
    parser.add_argument("--wish", choices=PREFERENCES, default="hedged")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--ratings", type=int, default=24, help="a day")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="burnish-week-") as folder:
        settings = {"BURNISH_TRAIN__SCHEDULE": "manual", "BURNISH_TRAIN__SEED": str(given.seed)}
        with burnish(Path(folder), settings) as url, User(url, PREFERENCES[given.wish]) as user:
            first, last = live(url, user, PREFERENCES[given.wish], given.days, given.ratings, given.seed)
    sys.exit(not holds(first, last, PREFERENCES[given.wish]))


def live(
    url: str, user: User, wish: Preference, days: int, ratings: int, seed: int
) -> tuple[list[AnsweredQuestion], list[AnsweredQuestion]]:
    """Rate and learn day by day; returns the measured answers before the first day and after the last."""
    questions = random.Random(seed).sample(PROMPTS, len(PROMPTS))
    measured, rated = questions[:MEASURED], questions[MEASURED:]
    print("| day | pleases | characters | on topic | the day's run |\n|---|---|---|---|---|", flush=True)
    answers = first = list(user.ask_all(measured, first_seed=0))
    _row(0, answers, wish, "")
    for day in range(1, days + 1):
        start = (day - 1) * ratings % len(rated)
        asked = (rated + rated)[start : start + ratings]
        for answered in user.ask_all(asked, first_seed=1000 * day + seed):
            user.rate(answered, answered.satisfies(wish.satisfied))
        outcome = learn(url, overrule=False)["outcome"]
        answers = list(user.ask_all(measured, first_seed=0))
        _row(day, answers, wish, outcome)
    return first, answers


def holds(first: list[AnsweredQuestion], last: list[AnsweredQuestion], wish: Preference) -> bool:
    before, after = ([float(each.satisfies(wish.satisfied)) for each in answers] for answers in (first, last))
    chance = by_chance(before, after)
    lengths = [summarise(answers, wish.satisfied).mean_characters for answers in (first, last)]
    change = lengths[1] / lengths[0] - 1
    print(f"\nlast day against the first: p = {chance:.4f}, length {change:+.0%}")
    return chance < CERTAIN and abs(change) <= LENGTH_STAYS


def _row(day: int, answers: list[AnsweredQuestion], wish: Preference, outcome: str) -> None:
    found = summarise(answers, wish.satisfied)
    print(
        f"| {day} | {found.satisfied:.2f} | {found.mean_characters:.0f} | {found.on_topic:.2f} | {outcome} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
