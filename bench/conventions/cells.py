"""A cell: a user teaches one convention by comments through burnish, and all columns sit an exam afterwards.

Three conventions in three orders make nine cells, so that each is taught first, second and third once. A cell starts
with the data directory of the cell before it in its order. If it is stopped, it goes on from there, and asks no answer
twice. The columns without training are asked once for all orders.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from bench.conventions.answers import Answer, AnswerFile, Assistant, Request, Say, ask_missing
from bench.conventions.catalogue import BY_NAME, Convention
from bench.conventions.questions import Question
from bench.conventions.scope import ExamQuestion, Row, exam_questions, notes_file
from bench.conventions.sweep import MAX_TOKENS, Sweep
from bench.learning.learn import learn
from burnish.parts.desktop.demo.running import burnish
from burnish.system.threads import cores

CONVENTION_NAMES = ("logging", "docstrings", "type-hints")
"""The conventions of the nine cells, until a sweep with 48 answers a column chooses others (docs/conventions.md)."""
ORDERS = (1, 2, 3)
DOSES = (8, 32)
"""Other numbers of comments, to compare the 16 of a cell with."""
ANSWERS_TO_A_QUESTION = 2
"""So often a question of teaching is asked at most."""
EXAM_SEED = 10_000
TIMED = ("cold", "cached/1", "cached/2", "cached/3")
"""Questions that are asked one after the other, to the end: only the first reads the whole prompt."""
LEARNING = {
    "BURNISH_TRAIN__SCHEDULE": "manual",
    # Nobody is served while it trains: the trainer may have all cores.
    "BURNISH_TRAIN__THREADS": str(cores()),
}
RECORD, TEACHING = "run.json", "teaching.jsonl"
SERVING = {"BURNISH_TRAIN__ENABLED": "false"}

UNTRAINED = ("base", "sentence", "notes", "instructions")
TRAINED = ("burnish", "burnish and sentence")
COLUMNS = (*UNTRAINED, *TRAINED)


@dataclass(frozen=True, slots=True)
class Size:
    comments: int
    rows: Mapping[Row, int]
    """Questions of each row about the convention that is taught."""
    earlier: int
    """Questions in scope about each convention that was taught before."""
    together: int
    """Questions to which all three conventions apply, once all are taught."""


FULL = Size(16, {"in scope": 40, "near": 8, "against": 14, "language": 13, "talk": 13}, 12, 10)
QUICK = Size(2, {"in scope": 4, "near": 1, "against": 1, "language": 1, "talk": 1}, 1, 1)


@dataclass(frozen=True, slots=True)
class Cell:
    """One convention at its place in an order."""

    name: str
    order: int
    """From 1."""
    out: Path
    size: Size
    sweep: Sweep
    """Knows the best wording of each sentence."""
    settings: Mapping[str, str]
    """Environment variables of the burnish under test."""
    at_once: int
    say: Say

    @property
    def sequence(self) -> list[Convention]:
        """The conventions of the order, up to this one."""
        start = self.order - 1
        names = [*CONVENTION_NAMES[start:], *CONVENTION_NAMES[:start]]
        return [BY_NAME[name] for name in names[: names.index(self.name) + 1]]

    @property
    def convention(self) -> Convention:
        return BY_NAME[self.name]

    @property
    def folder(self) -> Path:
        return self.out / f"order-{self.order}" / f"{len(self.sequence)}-{self.name}"

    @property
    def log(self) -> Path:
        """The data directory of the burnish that learns."""
        return self.folder / "burnish"

    def column(self, name: str) -> AnswerFile:
        """Return the answers of a column; those without training are all orders' own."""
        folder = self.out / self.name if name in UNTRAINED else self.folder
        return AnswerFile(folder / f"{name.replace(' ', '-')}.jsonl")

    def run(self) -> None:
        """Do what is missing of the cell. Raises NothingLearnt, DidNotStart, CellMissing."""
        untrained = UNTRAINED[:-1] if self.sequence[1:] else UNTRAINED
        if self.record and all(map(self._has_sat, (*untrained, *TRAINED))):
            return  # perhaps on another machine, so the data directory isn't needed
        self._start()
        for column in UNTRAINED[:-1]:
            self._sit(column, self.folder / "empty")
        self._teach()
        if "instructions" in untrained:  # later, comments on other conventions would be among them
            self._sit("instructions", self.folder / "commented")
        self._train()
        for column in TRAINED:
            self._sit(column, self.log)

    def answers(self, column: str) -> dict[str, Answer]:
        """Return what a column answered so far, by the request's key."""
        file = self.column(column)
        return {request.key: answer for request in self.requests(column) if (answer := file.get(request))}

    def questions(self, column: str) -> list[ExamQuestion]:
        """Return the exam of a column."""
        exam = list(exam_questions(self.convention, dict(self.size.rows)))
        if column in TRAINED:
            for convention in self.sequence[:-1]:
                counts = dict.fromkeys(self.size.rows, 0) | {"in scope": self.size.earlier}
                exam += exam_questions(convention, counts)
        return exam

    def together(self) -> list[Question]:
        """Return questions to which all conventions of the order apply, once all are taught."""
        if len(self.sequence) < len(CONVENTION_NAMES):
            return []
        special = max(self.sequence, key=lambda convention: -len(convention.kinds))
        return special.exam[-self.size.together :]

    def _start(self) -> None:
        """Make the data directories: an empty one, and that of the cell before."""
        if not self.log.exists() and (self.folder / TEACHING).exists():
            raise CellMissing(
                f"{self.log} is gone, and what the comments taught with it: delete {self.folder} to begin again"
            )
        (self.folder / "empty").mkdir(parents=True, exist_ok=True)
        if self.log.exists():
            return
        if not self.sequence[1:]:
            self.log.mkdir()
            return
        previous = replace(self, name=self.sequence[-2].name)
        if not previous.record:
            raise CellMissing(
                f"order {self.order} teaches {previous.name} first: run `cell {previous.name} --order {self.order}`"
            )
        _copied(previous.log, self.log)

    @property
    def record(self) -> dict[str, Any] | None:
        """Of the training, once it is over."""
        path = self.folder / RECORD
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def _teach(self) -> None:
        """Ask and comment on violations, one at a time, until there are enough comments."""
        commented = self.folder / "commented"
        if commented.exists():
            return
        answers, questions = AnswerFile(self.folder / TEACHING), self.convention.teaching
        with self._burnish(self.log, SERVING) as url, Assistant(url, MAX_TOKENS, whole=True) as assistant:
            count, comments = 0, self.convention.comments
            for place, question in enumerate(questions * ANSWERS_TO_A_QUESTION):
                if count == self.size.comments:
                    break
                self.say(f"{count} of {self.size.comments} comments")
                request = Request(f"{question.key}/{place // len(questions)}", question.text, "", place)
                earlier = answers.get(request)
                answer = earlier or assistant.ask(request)
                if not self.convention.check(answer.text):
                    if not earlier:
                        assistant.comment(answer, comments[(self.order + count) % len(comments)])
                    count += 1
                if not earlier:
                    answers.add(answer)
        _copied(self.log, commented)

    def _train(self) -> None:
        if self.record:
            return
        self.say("learning")
        began = time.monotonic()
        with self._burnish(self.log, LEARNING | {"BURNISH_TRAIN__SEED": str(self.order)}) as url:
            record = learn(url, overrule=True)
        record["seconds"] = round(time.monotonic() - began, 1)
        partial = self.folder / "run.tmp"
        partial.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
        partial.replace(self.folder / RECORD)

    def _has_sat(self, column: str) -> bool:
        return all(map(self.column(column).get, self.requests(column)))

    def _sit(self, column: str, log: Path) -> None:
        """Ask a column's exam on a copy of a data directory, so that the exam leaves no trace in it."""
        if self._has_sat(column):
            return
        file, exam = self.column(column), list(self.requests(column))
        settings = SERVING | ({"BURNISH_INSTRUCTIONS": "true"} if column == "instructions" else {})
        with self._burnish(_copied(log, self.folder / "exam"), settings) as url:
            for requests, at_once, whole in ((exam[: len(TIMED)], 1, True), (exam, self.at_once, False)):
                with Assistant(url, MAX_TOKENS, whole=whole) as assistant:
                    ask_missing(
                        assistant, requests, file, at_once, lambda text: self.say(f"{column}: {text}")
                    )
        shutil.rmtree(self.folder / "exam")

    def requests(self, column: str) -> Iterator[Request]:
        """Yield what a column is asked; the questions that are timed come first."""
        sentence = self._sentences(column, [self.convention])
        for name, question in zip(TIMED, self.convention.teaching, strict=False):
            yield Request(f"timing/{name}", question.text, sentence, EXAM_SEED)
        for place, part in enumerate(self.questions(column)):
            yield Request(
                part.key, part.question.text, self._sentences(column, [part.convention]), EXAM_SEED + place
            )
        if column != "instructions":
            everything = self._sentences(column, self.sequence)
            for question in self.together():
                yield Request(f"together/{question.key}", question.text, everything, EXAM_SEED)

    def _sentences(self, column: str, conventions: list[Convention]) -> str:
        sentences = [convention.sentences[self.sweep.wording(convention)] for convention in conventions]
        if column == "notes":
            return "\n\n" + notes_file(sentences)
        return " ".join(sentences) if "sentence" in column else ""

    @contextmanager
    def _burnish(self, folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
        with burnish(folder, dict(self.settings) | dict(settings)) as url:
            yield url


@dataclass(frozen=True, slots=True)
class Dose(Cell):
    """A convention that is taught alone, by another number of comments; examined in scope only."""

    @classmethod
    def of(cls, first: Cell, comments: int) -> Self:
        """Return what to compare the first cell of an order with."""
        rows = dict.fromkeys(first.size.rows, 0) | {"in scope": first.size.rows["in scope"]}
        size = Size(comments, rows, earlier=0, together=0)
        parts = {field.name: getattr(first, field.name) for field in fields(Cell)}
        return cls(**parts | {"size": size})

    @property
    def folder(self) -> Path:
        return self.out / f"{self.size.comments}-comments" / self.name

    def run(self) -> None:
        self._start()
        self._teach()
        self._train()
        self._sit(TRAINED[0], self.log)


class CellMissing(RuntimeError):
    """The cell before this one in its order isn't done."""


def _copied(folder: Path, target: Path) -> Path:
    """Copy a folder so that a bench that was stopped leaves all of the copy or nothing."""
    partial = target.with_name(f"{target.name}.part")
    for path in (partial, target):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder, partial)
    return partial.rename(target)
