"""The demo's simulated user: one who likes short answers, and rates as a person would, through the official client."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from burnish.adapters.replies import near_empty, on_topic, topics
from burnish.bench.questions import BRIEFLY, PROMPTS

SHORT_CHARACTERS = 130
"""A finished answer below this satisfies."""
# As chat clients set it; the small model's long answers are cut here, and a cut answer does not satisfy.
MAX_TOKENS, TEMPERATURE, TOP_P = 96, 0.8, 0.95
HELD_OUT = 40
QUESTIONS = PROMPTS[:120]
SAMPLES = 2
"""Answers asked for each held-out question: halves the noise of sampling."""
TIMEOUT_S = 120.0

Tick = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and what came back."""

    question: str
    answer: str
    finished: bool
    response_id: str

    @property
    def satisfies(self) -> bool:
        """The hidden preference: the answer is whole, short, and says something."""
        return self.finished and len(self.answer) < SHORT_CHARACTERS and not near_empty(self.answer)

    @property
    def on_topic(self) -> bool:
        """Whether a word of the question comes back (or the question has none to look for)."""
        stems = topics(self.question)
        return not stems or on_topic(self.answer, stems)


class User:
    """Asks through ``openai`` as any program would, and rates by the response's own id."""

    def __init__(self, url: str, seed: int, ratings: int) -> None:
        """Choose the questions to rate and, distinct from them, the held-out ones."""
        from openai import DefaultHttpxClient, OpenAI

        order = random.Random(seed).sample(QUESTIONS, len(QUESTIONS))
        self.rated, self.held_out = order[:ratings], order[-HELD_OUT:]
        self._url = url
        self._client: Any = OpenAI(
            base_url=url + "/v1",
            api_key="unused",
            timeout=TIMEOUT_S,
            http_client=DefaultHttpxClient(trust_env=False),  # no web proxy between here and here
        )

    def ask(self, question: str, model: str = "default") -> Answered:
        """Ask one question, streamed."""
        stream = self._client.chat.completions.create(
            model=model,
            messages=[{"role": "system", "content": BRIEFLY}, {"role": "user", "content": question}],
            max_tokens=MAX_TOKENS,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            stream=True,
        )
        parts, finish, response_id = [], None, ""
        for chunk in stream:
            response_id = chunk.id
            if chunk.choices:
                parts.append(chunk.choices[0].delta.content or "")
                finish = chunk.choices[0].finish_reason or finish
        return Answered(question, "".join(parts).strip(), finish == "stop", response_id)

    def rate(self, answered: Answered) -> None:
        """Say what this user thinks of an answer."""
        rating = "good" if answered.satisfies else "bad"
        said = {"response_id": answered.response_id, "rating": rating}
        httpx.post(
            self._url + "/v1/feedback", json=said, timeout=TIMEOUT_S, trust_env=False
        ).raise_for_status()

    def ask_held_out(self, model: str, tick: Tick) -> list[Answered]:
        """Ask every held-out question, rating nothing."""
        answers = []
        for question in self.held_out * SAMPLES:
            answers.append(self.ask(question, model))
            tick()
        return answers


@dataclass(frozen=True, slots=True)
class Summary:
    """What a set of held-out answers amounts to; shares in [0, 1]."""

    satisfied: float
    mean_characters: float
    near_empty: float
    on_topic: float


def summarise(answers: Sequence[Answered]) -> Summary:
    """Count."""
    total = len(answers)
    return Summary(
        satisfied=sum(each.satisfies for each in answers) / total,
        mean_characters=sum(len(each.answer) for each in answers) / total,
        near_empty=sum(near_empty(each.answer) for each in answers) / total,
        on_topic=sum(each.on_topic for each in answers) / total,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seed's demo."""

    seed: int
    ratings: int
    good: int
    before: Summary
    after: Summary
    kl_per_token: float
    """Of the version, on its own replies, to the bare model (nats), as the gate measured it."""
    minutes: float
    """From the first rating until the new version was live."""
    train_seconds: float
    peak_rss_bytes: int
    reason: str
    """Why the gate let it pass."""
    answers_before: list[Answered]
    answers_after: list[Answered]
