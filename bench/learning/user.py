"""A simulated user: asks through the official client as any program would, and says what they think of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import httpx

from burnish.adapters.replies import on_topic, topics
from burnish.bench.preferences import Preference

# As chat clients set it.
TEMPERATURE, TOP_P = 0.8, 0.95
TIMEOUT_S = 300.0
# The embedded engine's slots.
AT_ONCE = 4

_Result = TypeVar("_Result")


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

    def pleases(self, preference: Preference) -> bool:
        """Whether it keeps a user's rule."""
        return preference.satisfied(self.answer, self.finished)


class User:
    """One who wants something, and never shows the rule; closed at the end of a ``with``."""

    def __init__(self, url: str, preference: Preference) -> None:
        from openai import DefaultHttpxClient, OpenAI

        self.preference = preference
        self._url = url
        self._client: Any = OpenAI(
            base_url=url + "/v1",
            api_key="unused",
            timeout=TIMEOUT_S,
            http_client=DefaultHttpxClient(trust_env=False),  # no web proxy between here and here
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def ask(self, question: str, seed: int | None = None) -> Answered:
        """Ask what is live one question, streamed."""
        return self._ask([{"role": "user", "content": question}], seed)

    def go_on(self, answered: Answered, words: str) -> Answered:
        """Say something in the next turn of a conversation, and return what comes back."""
        history = [
            {"role": "user", "content": answered.question},
            {"role": "assistant", "content": answered.answer},
        ]
        return self._ask([*history, {"role": "user", "content": words}], None)

    def _ask(self, messages: list[dict[str, str]], seed: int | None) -> Answered:
        system = self.preference.system
        stream = self._client.chat.completions.create(
            model="default",
            messages=[{"role": "system", "content": system}, *messages] if system else messages,
            max_tokens=self.preference.max_tokens,
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
        return Answered(messages[-1]["content"], "".join(parts).strip(), finish == "stop", response_id)

    def ask_all(self, questions: Sequence[str], first_seed: int | None = None) -> Iterator[Answered]:
        """Ask several questions, a few at once, and yield the answers in their order.

        With ``first_seed`` each has dice of its own, so that versions can be compared.
        """
        return _at_once(
            lambda place: self.ask(questions[place], None if first_seed is None else first_seed + place),
            len(questions),
        )

    def ask_plainly(self, questions: Sequence[str], max_tokens: int) -> Iterator[str]:
        """Ask without any system message and without dice."""

        def one(place: int) -> str:
            answer = self._client.chat.completions.create(
                model="default",
                messages=[{"role": "user", "content": questions[place]}],
                max_tokens=max_tokens,
                temperature=0,
            )
            return str(answer.choices[0].message.content or "")

        return _at_once(one, len(questions))

    def pleased(self, answered: Answered) -> bool:
        """Whether an answer keeps the rule."""
        return answered.pleases(self.preference)

    def rate(self, answered: Answered, good: bool, comment: str | None = None) -> None:
        """Say good or bad, and perhaps in words why."""
        said: dict[str, str | int] = {
            "response_id": answered.response_id,
            "rating": "good" if good else "bad",
        }
        self._say(said | ({"comment": comment} if comment else {}))

    def grade(self, answered: Answered, grade: int) -> None:
        """Give an answer 1 to 5."""
        self._say({"response_id": answered.response_id, "rating": grade, "scale": "likert"})

    def prefer(self, better: Answered, worse: Answered) -> None:
        """Say which of two answers is better."""
        self._say({"response_id": better.response_id, "preferred_over": worse.response_id})

    def _say(self, said: dict[str, str | int]) -> None:
        httpx.post(
            self._url + "/v1/feedback", json=said, timeout=TIMEOUT_S, trust_env=False
        ).raise_for_status()


def _at_once(one: Callable[[int], _Result], count: int) -> Iterator[_Result]:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield from threads.map(one, range(count))
