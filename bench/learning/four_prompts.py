"""Four prompts, graded 1 to 5 before and after one round of learning.

``python -m bench.learning.four_prompts [--arm ARM] [--wish WISH] [--seed N] [--times N]``: a user grades or comments on
the answers to other questions, burnish learns from them once, and each of the four prompts is answered many times
before and after. Prints each mean grade with a permutation test. Ten minutes on two idle cores. Exits 1 unless all four
rise with p < .01.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from bench.learning.arms import ARMS, Arm
from bench.learning.chance import by_chance
from bench.learning.learn import learn
from bench.learning.preferences import PREFERENCES, Preference
from bench.learning.questions import PROMPTS
from bench.learning.user import User
from burnish.parts.desktop.demo.running import burnish

PROMPTS_GRADED = (
    "Why is the sky blue?",
    "What is inflation?",
    "How do vaccines work?",
    "What does a lawyer do?",
)
RATINGS = {True: 16, False: 32}
"""With comments, and without."""
CERTAIN = 0.01
LEAST_SHOWN = 0.0001
Grades = Mapping[str, list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", choices=ARMS, default="auto_words")
    parser.add_argument("--wish", choices=PREFERENCES, default="brief-cold")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=12, help="answers to each prompt, before and after")
    given = parser.parse_args()
    arm, wish = ARMS[given.arm], PREFERENCES[given.wish]
    settings = {"BURNISH_TRAIN__SCHEDULE": "manual", "BURNISH_TRAIN__SEED": str(given.seed), **arm.settings}
    with tempfile.TemporaryDirectory(prefix="burnish-four-") as folder:
        with burnish(Path(folder), settings) as url, User(url, wish) as user:
            before = graded(user, wish, given.times)
            teach(user, wish, arm, given.seed)
            outcome = learn(url, overrule=True)
            after = graded(user, wish, given.times)
    print(f"{wish.name} by {arm.name}, seed {given.seed}: {outcome['outcome']}. {outcome['reason']}\n")
    print("| prompt | before | after | p |\n|---|---|---|---|")
    chances = []
    for prompt in PROMPTS_GRADED:
        chances.append(by_chance(before[prompt], after[prompt]))
        print(
            f"| {prompt} | {fmean(before[prompt]):.1f} | {fmean(after[prompt]):.1f} | {_shown(chances[-1])} |"
        )
    sys.exit(max(chances) >= CERTAIN)


def _shown(chance: float) -> str:
    return f"{chance:.4f}" if chance >= LEAST_SHOWN else f"below {LEAST_SHOWN}"


def graded(user: User, wish: Preference, times: int) -> Grades:
    """Ask each prompt several times; return its grades."""
    asked = [prompt for prompt in PROMPTS_GRADED for _ in range(times)]
    grades: dict[str, list[int]] = {}
    for answered in user.ask_all(asked, first_seed=0):
        grades.setdefault(answered.question, []).append(wish.grade(answered.answer, answered.finished))
    return grades


def teach(user: User, wish: Preference, arm: Arm, seed: int) -> None:
    """Grade answers to other questions, or say in words what was wrong with them."""
    dice = random.Random(seed)
    others = [question for question in PROMPTS if question not in PROMPTS_GRADED]
    for answered in user.ask_all(dice.sample(others, RATINGS[arm.comments]), first_seed=seed):
        good = answered.satisfies(wish.satisfied)
        if arm.comments:
            user.rate(answered, good, None if good else dice.choice(wish.comments))
        else:
            user.grade(answered, wish.grade(answered.answer, answered.finished))


if __name__ == "__main__":
    main()
