"""Simulated users with a hidden preference: what the demo's user does, and grades, comparisons and second turns."""

from __future__ import annotations

from bench.learning.preferences import Preference
from burnish.parts.desktop.demo.user import AnsweredQuestion
from burnish.parts.desktop.demo.user import User as DemoUser


class User(DemoUser):
    """A user who never shows the rule; closed at the end of a ``with``."""

    def __init__(self, url: str, preference: Preference) -> None:
        super().__init__(url, preference.system, preference.max_tokens)

    def go_on(self, answered: AnsweredQuestion, text: str) -> AnsweredQuestion:
        """Write the next turn of a conversation, and return the answer."""
        history = [
            {"role": "user", "content": answered.question},
            {"role": "assistant", "content": answered.answer},
        ]
        return self.chat([*history, {"role": "user", "content": text}])

    def grade(self, answered: AnsweredQuestion, grade: int) -> None:
        """Give an answer 1 to 5."""
        self.send({"response_id": answered.response_id, "rating": grade, "scale": "likert"})

    def prefer(self, better: AnsweredQuestion, worse: AnsweredQuestion) -> None:
        self.send({"response_id": better.response_id, "preferred_over": worse.response_id})
