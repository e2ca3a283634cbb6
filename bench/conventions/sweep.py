"""The sweep: what the base model does, and what one sentence in the system prompt changes.

Each candidate gets the best of its three wordings, which is found on questions of teaching. The base is asked the
exam's questions once for all candidates. Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.conventions.answers import AnswerFile, Assistant, Request, Say, ask_missing
from bench.conventions.catalogue import CONVENTIONS, Convention
from bench.conventions.questions import Question

MAX_TOKENS = 256
"""A first block of code that is longer counts as none."""
ROUND = 8
"""Questions in a row with the same system prompt, which the engine reads once."""


@dataclass(frozen=True, slots=True)
class Sweep:
    answers: AnswerFile
    count: int
    """Answers of a column."""
    tuning: int
    """Questions for each wording."""

    def ask(self, assistant: Assistant, at_once: int, say: Say) -> None:
        """Ask what is missing."""
        wordings = [request for convention in CONVENTIONS for request in self._wordings(convention)]
        ask_missing(assistant, wordings, self.answers, at_once, lambda text: say(f"wordings: {text}"))
        columns = {request.key: request for request in self._columns()}
        ask_missing(assistant, columns.values(), self.answers, at_once, lambda text: say(f"columns: {text}"))

    def wording(self, convention: Convention) -> int:
        """Return which wording of the sentence is kept most often; of equals the first."""
        counts = [
            sum(
                convention.check(self.answers.answers[key].text)
                for question in convention.teaching[: self.tuning]
                if (key := wording_key(convention, wording, question)) in self.answers.answers
            )
            for wording in range(len(convention.sentences))
        ]
        return counts.index(max(counts))

    def _wordings(self, convention: Convention) -> Iterator[Request]:
        for wording, sentence in enumerate(convention.sentences):
            for place, question in enumerate(convention.teaching[: self.tuning]):
                yield Request(wording_key(convention, wording, question), question.text, sentence, place)

    def _columns(self) -> Iterator[Request]:
        """Yield rounds of questions, so that a sweep that is stopped has about the same number of each column."""
        for start in range(0, self.count, ROUND):
            places = range(start, min(start + ROUND, self.count))
            for convention in CONVENTIONS:
                wording = self.wording(convention)
                for place in places:
                    question, draw = drawn(convention, place)
                    yield Request(base_key(question, draw), question.text, None, place)
                for place in places:
                    question, draw = drawn(convention, place)
                    key = sentence_key(convention, wording, question, draw)
                    yield Request(key, question.text, convention.sentences[wording], place)


def drawn(convention: Convention, place: int) -> tuple[Question, int]:
    """Return an exam's question and which of its answers is meant: where questions are few, each is asked again."""
    exam = convention.exam
    return exam[place % len(exam)], place // len(exam)


def wording_key(convention: Convention, wording: int, question: Question) -> str:
    return f"wording/{convention.name}/{wording}/{question.key}"


def base_key(question: Question, draw: int) -> str:
    return f"base/{question.key}/{draw}"


def sentence_key(convention: Convention, wording: int, question: Question, draw: int) -> str:
    return f"sentence/{convention.name}/{wording}/{question.key}/{draw}"
