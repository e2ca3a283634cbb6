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
        wordings = [request for convention in CONVENTIONS for _, request in self._wordings(convention)]
        ask_missing(assistant, wordings, self.answers, at_once, lambda text: say(f"wordings: {text}"))
        columns = {request.key: request for request in self._columns()}
        ask_missing(assistant, columns.values(), self.answers, at_once, lambda text: say(f"columns: {text}"))

    def wording(self, convention: Convention) -> int:
        """Return which wording of the sentence is kept most often; of equals the first."""
        counts = [0] * len(convention.sentences)
        for wording, request in self._wordings(convention):
            if answer := self.answers.get(request):
                counts[wording] += convention.check(answer.text)
        return counts.index(max(counts))

    def pair(self, convention: Convention, place: int) -> tuple[Question, Request, Request]:
        """Return a question of the exam, and what is asked of the base and of the sentence.

        If questions are few, each is asked again.
        """
        draw, index = divmod(place, len(convention.exam))
        question, wording = convention.exam[index], self.wording(convention)
        key = f"{question.key}/{draw}"
        base = Request(f"base/{key}", question.text, "", draw)
        sentence = convention.sentences[wording]
        return (
            question,
            base,
            Request(f"sentence/{convention.name}/{wording}/{key}", question.text, sentence, draw),
        )

    def _wordings(self, convention: Convention) -> Iterator[tuple[int, Request]]:
        for wording, sentence in enumerate(convention.sentences):
            for question in convention.teaching[: self.tuning]:
                key = f"wording/{convention.name}/{wording}/{question.key}"
                yield wording, Request(key, question.text, sentence, 0)

    def _columns(self) -> Iterator[Request]:
        """Yield rounds of questions, so that a sweep that is stopped has about the same number of each column."""
        for start in range(0, self.count, ROUND):
            for convention in CONVENTIONS:
                places = range(start, min(start + ROUND, self.count))
                pairs = [self.pair(convention, place) for place in places]
                yield from (base for _, base, _ in pairs)
                yield from (sentence for _, _, sentence in pairs)
