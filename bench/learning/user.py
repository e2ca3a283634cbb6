"""A simulated user: asks through the official client as any program would, and says what they think of the answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from burnish.adapters.replies import near_empty, on_topic, repetitive, topics
from burnish.bench.preferences import Preference

# As chat clients set it; the small model's long answers are cut here.
MAX_TOKENS, TEMPERATURE, TOP_P = 96, 0.8, 0.95
# Enough for a fact.
PLAIN_TOKENS = 40
TIMEOUT_S = 300.0
# The embedded engine's slots.
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and what came back."""

    question: str
    answer: str
    finished: bool
    response_id: str

    @property
    def on_topic(self) -> bool:
        """Whether a word of the question comes back (or the question has none to look for)."""
        stems = topics(self.question)
        return not stems or on_topic(self.answer, stems)


class User:
    """One who wants something, and never shows the rule."""

    def __init__(self, url: str, preference: Preference, seed: int) -> None:
        from openai import DefaultHttpxClient, OpenAI

        self.preference = preference
        self._url = url
        self._dice = random.Random(seed)
        self._client: Any = OpenAI(
            base_url=url + "/v1",
            api_key="unused",
            timeout=TIMEOUT_S,
            http_client=DefaultHttpxClient(trust_env=False),  # no web proxy between here and here
        )

    def ask(self, question: str, model: str = "default", seed: int | None = None) -> Answered:
        """Ask one question, streamed."""
        messages = [{"role": "user", "content": question}]
        if self.preference.system:
            messages.insert(0, {"role": "system", "content": self.preference.system})
        stream = self._client.chat.completions.create(
            model=model,
            messages=messages,
            max_tokens=MAX_TOKENS,
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
        return Answered(question, "".join(parts).strip(), finish == "stop", response_id)

    def ask_all(self, questions: Sequence[str], model: str, *, first_seed: int) -> list[Answered]:
        """Ask several questions, a few at once; each has dice of its own, so that models can be compared."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(
                threads.map(
                    lambda place: self.ask(questions[place], model, seed=first_seed + place),
                    range(len(questions)),
                )
            )

    def ask_plainly(self, questions: Sequence[str]) -> list[str]:
        """Ask what is live, without any system message and without dice."""

        def one(question: str) -> str:
            answer = self._client.chat.completions.create(
                model="default",
                messages=[{"role": "user", "content": question}],
                max_tokens=PLAIN_TOKENS,
                temperature=0,
            )
            return str(answer.choices[0].message.content or "")

        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(one, questions))

    def pleased(self, answered: Answered) -> bool:
        """Whether an answer keeps the rule."""
        return self.preference.satisfied(answered.answer, answered.finished)

    def rate(self, answered: Answered, good: bool, *, comment: bool = False) -> None:
        """Say good or bad, in words as well where they are bad and ``comment`` is set."""
        said: dict[str, Any] = {"response_id": answered.response_id, "rating": "good" if good else "bad"}
        if comment and not good:
            said["comment"] = self._dice.choice(self.preference.comments)
        self._say(said)

    def prefer(self, better: Answered, worse: Answered) -> None:
        """Say which of two answers is better."""
        self._say({"response_id": better.response_id, "preferred_over": worse.response_id})

    def _say(self, said: dict[str, Any]) -> None:
        httpx.post(
            self._url + "/v1/feedback", json=said, timeout=TIMEOUT_S, trust_env=False
        ).raise_for_status()


@dataclass(frozen=True, slots=True)
class Summary:
    """What a set of answers amounts to; shares in [0, 1]."""

    satisfied: float
    joint: float
    """Satisfied and on topic."""
    on_topic: float
    near_empty: float
    repetitive: float
    cut: float
    mean_characters: float


def summarise(answers: Sequence[Answered], preference: Preference) -> Summary:
    """Count."""

    def share(true: Callable[[Answered], bool]) -> float:
        return sum(map(true, answers)) / len(answers)

    def pleased(each: Answered) -> bool:
        return preference.satisfied(each.answer, each.finished)

    return Summary(
        satisfied=share(pleased),
        joint=share(lambda each: pleased(each) and each.on_topic),
        on_topic=share(lambda each: each.on_topic),
        near_empty=share(lambda each: near_empty(each.answer)),
        repetitive=share(lambda each: repetitive(each.answer)),
        cut=share(lambda each: not each.finished),
        mean_characters=sum(len(each.answer) for each in answers) / len(answers),
    )
