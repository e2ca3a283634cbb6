"""Measure one cell: users ask and rate, burnish learns, and what it learnt is examined.

The base model answers once per seed and program, and its answers are kept: all arms learn from the same ratings of the
same answers. An exam is held on a copy of the data directory: it leaves no trace in the log by which burnish learns and
judges, and no cell depends on what was asked for another.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.learning.arms import ARMS
from bench.learning.cell import Cell, settled
from bench.learning.exam import ASKED_AT_LENGTH, Exam, marked, sit
from bench.learning.learn import learn, leave
from bench.learning.preferences import PREFERENCES, Preference
from bench.learning.questions import PROMPTS
from bench.learning.stress import stressed
from bench.learning.user import User
from burnish.parts.desktop.demo.running import burnish
from burnish.parts.desktop.demo.user import AnsweredQuestion
from burnish.system.threads import cores

CHECKOUT = Path(__file__).resolve().parents[2]
ANSWERS = "answers.json"
# The dice of a seed's questions; two answers to the same question come from different ones.
DICE_OF_A_SEED, DICE_OF_AN_ANSWER = 1000, 500

_asking: dict[Path, threading.Lock] = {}

Say = Callable[[str], None]
"""Told what is being done."""


def measure(cell: Cell, kept: Path, scratch: Path, settings: Mapping[str, str], say: Say) -> dict[str, Any]:
    """Run a cell and return its record.

    ``kept`` holds the base model's answers that cells share, ``scratch`` what only this one needs; ``settings`` are
    environment variables of the burnish under test. Raises NothingLearnt, DidNotStart.
    """
    return _Measurement(cell, kept, scratch, settings, say).record()


class _Measurement:
    """A cell while it is measured."""

    def __init__(self, cell: Cell, kept: Path, scratch: Path, settings: Mapping[str, str], say: Say) -> None:
        self.cell, self.kept, self.scratch, self.say = cell, kept, scratch, say
        self.arm = ARMS[cell.arm]
        self.wanted = [PREFERENCES[name] for name in cell.users]
        self.program = self.wanted[-1]
        """All users have the same."""
        order = random.Random(cell.seed).sample(PROMPTS, len(PROMPTS))
        self.questions, self.held_out = order[: cell.counts[-1]], order[-cell.held_out :]
        self.at_length = order[-ASKED_AT_LENGTH:] if cell.widely else []
        self.settings = dict(settings)
        # Nobody is served while it trains: the trainer may have all cores.
        self.learning = {
            "BURNISH_TRAIN__SCHEDULE": "manual",
            "BURNISH_TRAIN__SEED": str(cell.seed),
            "BURNISH_TRAIN__THREADS": str(cores()),
        }
        self.seconds: dict[str, float] = {}

    def record(self) -> dict[str, Any]:
        cell, started = self.cell, time.monotonic()
        before = marked(self._bare_exam(), self.wanted)
        points, pleased = [], list[bool]()
        folder = self._fresh()
        for done, count in pairwise((0, *cell.counts)):
            if cell.way == "anew" and done:
                folder = self._fresh()
            with self._burnish(folder, self.learning | dict(self.arm.settings)) as url:
                with User(url, self.program) as user:
                    pleased += self._talk(user, folder, 0 if cell.way == "anew" else done, count)
                if cell.way == "online" and settled(pleased):
                    break
                self.say(f"learning from {count} ratings")
                with self._timed("learning"):
                    points.append({"ratings": count} | learn(url, overrule=cell.way != "online"))
            if cell.way != "online":
                points[-1] |= marked(self._exam(folder), self.wanted)
        content = asdict(cell) | {"key": cell.key, "before": before, "points": points}
        content["seconds"] = self.seconds | {"all": round(time.monotonic() - started, 1)}
        return content if cell.way == "anew" else content | {"settled": settled(pleased)}

    def _talk(self, user: User, folder: Path, done: int, count: int) -> list[bool]:
        """Ask and rate; return whether the first answers please those who asked."""
        firsts, seconds = self._answers(user, folder, done, count)
        raters = [PREFERENCES[self.cell.rater(place)] for place in range(done, count)]
        pleased = [first.satisfies(rater.satisfied) for rater, first in zip(raters, firsts, strict=True)]
        if self.arm.pairs:
            for rater, *pair in zip(raters, firsts, seconds, strict=True):
                _compare(user, rater, pair)
            return pleased
        seed = self.cell.seed + done
        dice = random.Random(seed)
        for rater, first, good in zip(raters, firsts, stressed(self.cell.stress, pleased, seed), strict=True):
            words = dice.choice(rater.comments) if good is False else None
            if self.arm.grades:
                user.grade(first, rater.grade(first.answer, first.finished))
            elif good is not None:
                user.rate(first, good, words if self.arm.comments else None)
            if words and self.arm.turns:
                user.go_on(first, words)
        return pleased

    def _answers(
        self, user: User, folder: Path, done: int, count: int
    ) -> tuple[list[AnsweredQuestion], list[AnsweredQuestion]]:
        """Return first and, where answers are compared, second answers to a round's questions.

        Those of the first round are the base model's, which are in the folder's log already.
        """
        if not done:
            first, second = json.loads((folder / ANSWERS).read_text(encoding="utf-8"))
            return [AnsweredQuestion(**each) for each in first[:count]], [
                AnsweredQuestion(**each) for each in second[:count]
            ]
        self.say(f"asking questions {done + 1} to {count}")
        with self._timed("asking"):
            return self._ask(user, done, count)

    def _ask(
        self, user: User, done: int, count: int
    ) -> tuple[list[AnsweredQuestion], list[AnsweredQuestion]]:
        dice = DICE_OF_A_SEED * (self.cell.seed + 1) + done
        first = list(user.ask_all(self.questions[done:count], dice))
        if not self.arm.pairs:
            return first, []
        return first, list(user.ask_all(self.questions[done:count], dice + DICE_OF_AN_ANSWER))

    def _fresh(self) -> Path:
        """Return a new data directory in which the base model was asked the questions of the first round."""
        cell = self.cell
        count = cell.counts[-1] if cell.way == "anew" else cell.counts[0]
        name = f"asked-{self._program()}-{cell.seed}-{count}{'-twice' if self.arm.pairs else ''}"
        asked = self.kept / name
        with _alone(asked):
            if not (asked / ANSWERS).exists():
                shutil.rmtree(asked, ignore_errors=True)
                asked.mkdir(parents=True)
                self.say(f"asking {count} questions")
                with self._burnish(asked) as url, User(url, self.program) as user, self._timed("asking"):
                    answers = [[asdict(answered) for answered in each] for each in self._ask(user, 0, count)]
                _write(asked / ANSWERS, answers)
        return _copied(asked, self.scratch / "cell")

    def _bare_exam(self) -> Exam:
        kind = "exam" if self.cell.widely else "answers"
        path = self.kept / f"{kind}-{self._program()}-{self.cell.seed}-{self.cell.held_out}.json"
        with _alone(path):
            if not path.exists():
                (empty := self.scratch / "bare").mkdir(parents=True)
                exam = self._exam(empty)
                self.kept.mkdir(parents=True, exist_ok=True)
                _write(path, asdict(exam))
        content = json.loads(path.read_text(encoding="utf-8"))
        return Exam(
            [AnsweredQuestion(**each) for each in content["answers"]], content["known"], content["lengthy"]
        )

    def _exam(self, folder: Path) -> Exam:
        self.say(f"asking {self.cell.held_out} other questions")
        with self._burnish(_copied(folder, self.scratch / "exam")) as url:
            with User(url, self.program) as user, self._timed("exam"):
                exam = sit(user, self.held_out, self.at_length)
            leave(url)
        return exam

    def _program(self) -> str:
        return f"{'briefly' if self.program.system else 'plain'}-{self.program.max_tokens}"

    @contextmanager
    def _burnish(self, folder: Path, learning: Mapping[str, str] | None = None) -> Iterator[str]:
        own = {"BURNISH_TRAIN__ENABLED": "false"} if learning is None else learning
        own = {"PYTHONPATH": str(CHECKOUT), **own}  # the trainer imports bench.learning.losses
        with burnish(folder, self.settings | dict(own)) as url:
            yield url

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[what] = round(self.seconds.get(what, 0.0) + time.monotonic() - began, 1)


def _alone(path: Path) -> threading.Lock:
    """Of cells that need the same of the base model at once, one asks, and the others wait for it."""
    return _asking.setdefault(path, threading.Lock())


def _compare(user: User, rater: Preference, pair: list[AnsweredQuestion]) -> None:
    """Say which of two answers is better, when only one of them pleases."""
    better = [each for each in pair if each.satisfies(rater.satisfied)]
    worse = [each for each in pair if not each.satisfies(rater.satisfied)]
    if better and worse:
        user.prefer(better[0], worse[0])


def _write(path: Path, content: Any) -> None:
    """Write JSON so that a bench that was stopped leaves all of it or nothing."""
    written = path.with_suffix(".tmp")
    written.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    written.replace(path)


def _copied(folder: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(folder, target))
