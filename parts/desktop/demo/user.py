"""A simulated user: asks through the official client as any program would, and rates the answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import httpx

from burnish.gate import questions
from burnish.gate.replies import near_empty, on_topic, repetitive, topics
from burnish.parts.desktop.demo.halves import Half

# As chat clients set it.
TEMPERATURE, TOP_P = 0.8, 0.95
# As chat clients set it; the small model's long answers are cut here.
MAX_TOKENS = 96
TIMEOUT_S = 300.0
# Every engine takes a seed below this.
SEEDS = 2**31
# The embedded engine's slots.
AT_ONCE = 4
SHORT_CHARACTERS = 130
"""A finished answer below this is brief."""

_Reply = TypeVar("_Reply")
Rule = Callable[[str, bool], bool]
"""(reply, finished) → whether the user is satisfied."""


def brief(text: str, finished: bool) -> bool:
    """The rule of a user who likes short answers."""
    return finished and len(text) < SHORT_CHARACTERS and not near_empty(text)


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    question: str
    answer: str
    finished: bool
    response_id: str

    @property
    def on_topic(self) -> bool:
        """True when the answer repeats a word of the question, or the question has none to repeat."""
        stems = topics(self.question)
        return not stems or on_topic(self.answer, stems)

    def satisfies(self, rule: Rule) -> bool:
        return rule(self.answer, self.finished)


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a set of answers; shares in [0, 1]."""

    satisfied: float
    joint: float
    """Satisfied and on topic."""
    on_topic: float
    near_empty: float
    repetitive: float
    cut: float
    mean_characters: float


def summarise(answers: Sequence[AnsweredQuestion], rule: Rule) -> Summary:
    def share(true: Callable[[AnsweredQuestion], bool]) -> float:
        return sum(map(true, answers)) / len(answers)

    return Summary(
        satisfied=share(lambda answer: answer.satisfies(rule)),
        joint=share(lambda answer: answer.satisfies(rule) and answer.on_topic),
        on_topic=share(lambda answer: answer.on_topic),
        near_empty=share(lambda answer: near_empty(answer.answer)),
        repetitive=share(lambda answer: repetitive(answer.answer)),
        cut=share(lambda answer: not answer.finished),
        mean_characters=sum(len(answer.answer) for answer in answers) / len(answers),
    )


class User:
    """A user who knows what they want and only ever rates; closed at the end of a ``with``.

    ``system``, ``max_tokens`` and ``model`` are set by the program through which they chat.
    """

    def __init__(
        self, url: str, system: str | None, max_tokens: int = MAX_TOKENS, model: str = "default"
    ) -> None:
        from openai import DefaultHttpxClient, OpenAI

        self._url, self._system, self._max_tokens, self._model = url, system, max_tokens, model
        self._client: Any = OpenAI(
            base_url=url + "/v1",
            api_key="unused",
            timeout=TIMEOUT_S,
            # A web proxy can't reach this machine's loopback.
            http_client=DefaultHttpxClient(trust_env=False),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def ask(self, question: str, seed: int | None = None) -> AnsweredQuestion:
        """Ask one question, streamed."""
        return self.chat([{"role": "user", "content": question}], seed)

    def chat(self, messages: list[dict[str, str]], seed: int | None = None) -> AnsweredQuestion:
        """Send a conversation, streamed; its last message counts as the question."""
        system = [{"role": "system", "content": self._system}] if self._system else []
        stream = self._client.chat.completions.create(
            model=self._model,
            messages=[*system, *messages],
            max_tokens=self._max_tokens,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            seed=seed,
            stream=True,
        )
        parts, finish, response_id = [], None, ""
        for chunk in stream:
            response_id = chunk.id
            if chunk.choices:
                parts.append(chunk.choices[0].delta.content or "")
                finish = chunk.choices[0].finish_reason or finish
        return AnsweredQuestion(
            messages[-1]["content"], "".join(parts).strip(), finish == "stop", response_id
        )

    def ask_all(self, questions: Sequence[str], first_seed: int | None = None) -> Iterator[AnsweredQuestion]:
        """Ask several questions, a few at once, and yield the answers in their order.

        With ``first_seed`` each question has a seed of its own, which makes versions comparable.
        """
        return self.at_once(
            lambda place: self.ask(questions[place], None if first_seed is None else first_seed + place),
            len(questions),
        )

    def ask_plainly(self, questions: Sequence[str], max_tokens: int) -> Iterator[str]:
        """Ask without a system message, at temperature 0."""

        def one(place: int) -> str:
            answer = self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": questions[place]}],
                max_tokens=max_tokens,
                temperature=0,
            )
            return str(answer.choices[0].message.content or "")

        return self.at_once(one, len(questions))

    def known_facts(self) -> Iterator[bool]:
        """Ask for each fact of the gate, as the gate does; yield whether the answer is right."""
        answers = self.ask_plainly([question for question, _ in questions.FACTS], questions.MAX_TOKENS)
        for answer, (_, accepted) in zip(answers, questions.FACTS, strict=True):
            yield questions.right(answer, accepted)

    def teach(self, half: Half, questions: Sequence[str], seed: int) -> Iterator[bool]:
        """Ask and rate until the half's count is reached; yield of each answer whether it was rated good.

        Comments count where the half has them, so its good answers come on top.
        """
        dice, budget = random.Random(seed), half.count
        for question in questions:
            answer = self.ask(question, dice.randrange(SEEDS))
            good = answer.satisfies(brief)
            words = dice.choice(half.comments) if half.comments and not good else None
            self.rate(answer, good, words)
            yield good
            budget -= 1 if words or not half.comments else 0
            if not budget:
                return

    def rate(self, answer: AnsweredQuestion, good: bool, comment: str | None = None) -> None:
        feedback = {"response_id": answer.response_id, "rating": "good" if good else "bad"}
        self.send(feedback | ({"comment": comment} if comment else {}))

    def send(self, feedback: dict[str, Any]) -> None:
        """Post one piece of feedback. Raises httpx.HTTPError."""
        response = httpx.post(self._url + "/v1/feedback", json=feedback, timeout=TIMEOUT_S, trust_env=False)
        response.raise_for_status()

    @staticmethod
    def at_once(call: Callable[[int], _Reply], count: int) -> Iterator[_Reply]:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            yield from threads.map(call, range(count))
