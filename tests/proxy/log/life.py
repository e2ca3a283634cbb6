"""A log to which anything happens."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any

from burnish.proxy.feedback.usability import usability_by
from burnish.proxy.ids import feedback_id
from burnish.proxy.log import Keep, Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.records import Feedback, FeedbackDraft, Source
from tests.proxy.log.exchanges import Message, assistant, capture, pass_on, user

RULES = Rules({}, "auto", scrub=True)
EVENTS = tuple(
    event
    for event, times in {
        **{"talk": 40, "rate": 40, "grade": 25, "compare": 15, "undo": 15, "prune": 3, "forget": 3},
        **{"start_over": 2, "pass_through": 3, "bring_in": 5},
    }.items()
    for _ in range(times)
)
"""What can happen, as often as it does."""


class Life:
    def __init__(self, log: Log, chance: random.Random) -> None:
        self.log = log
        self.chance = chance
        self.talks: list[tuple[list[Message], str]] = []
        """Histories that can go on, and the last completion of each."""
        self.feedback: list[str] = []
        self.compared, self.judged = set[str](), set[str]()

    async def talk(self) -> None:
        chance = self.chance
        history: list[Message] = []
        if self.talks and chance.random() < 0.8:
            history, _ = chance.choice(self.talks)  # a branch, when it went on from there already
        asked = {"role": "tool", "tool_call_id": "c", "content": "ok"} if chance.random() < 0.3 else None
        asked = asked if asked and history else user(f"{chance.randrange(3)}?")
        if chance.random() < 0.2:
            asked = dict(reversed(asked.items()))  # the same message, logged differently
        reply = f"{chance.randrange(10**6)}."
        changes: dict[str, Any] = {"caller": chance.choice(("ann", "bob"))}
        if chance.random() < 0.1:
            changes |= chance.choice(({"outcome": "cut"}, {"status": 500}, {"chunks": ()}))
        if chance.random() < 0.05:
            changes |= {
                "surface": "ollama_generate",
                "request_body": b'{"model":"m","prompt":"Hi","raw":true}',
                "chunks": (b'{"model":"m","response":"Hello","done":true,"done_reason":"stop"}',),
            }
        made = capture(self.log, [*history, asked], reply, **changes)
        self.talks.append(([*history, asked, assistant(reply)], made))

    async def _add(self, **draft: Any) -> None:
        if self.talks:
            target = self.chance.choice(self.talks[-12:])[1]
            key = self.chance.choice((None, "api_key", "admin_key"))
            made = FeedbackDraft(target, "completion_id", given_with=key, **draft)
            try:
                self.feedback.append((await self.log.add_feedback(made))[0].id)
            except LookupError:
                self.talks = [each for each in self.talks if each[1] != target]  # it was deleted

    async def rate(self) -> None:
        chance = self.chance
        words = {"comment": (None, "too long", "wrong"), "correction": (None, None, "Short.")}
        draft: dict[str, Any] = {name: chance.choice(texts) for name, texts in words.items()}
        draft["scope"] = chance.choice(("completion", "completion", "turn", "conversation"))
        draft |= {"rater": chance.choice(("ann", "bob", "eve")), "reward": chance.choice((1, -1, -1, None))}
        await self._add(scale="binary", **draft)

    async def grade(self) -> None:
        reward = self.chance.choice((0.0, 0.25, 0.5, 0.75, 1.0))
        await self._add(reward=reward, scale="scalar", rater=self.chance.choice(("judge", "bob")))

    async def compare(self) -> None:
        # A judge yields to people who compare its answer with one of the same conversation.
        if others := [name for _, name in self.talks if name not in self.judged]:
            self.compared.add(other := self.chance.choice(others))
            await self._add(preferred_over=other, rater="ann")

    async def undo(self) -> None:
        if self.feedback:
            chosen = self.chance.choice(self.feedback)
            self.feedback.remove(chosen)
            with suppress(LookupError):  # it may have been deleted with its completion
                await self.log.undo_feedback(chosen)

    async def prune(self) -> None:
        await self.log.prune(Keep(completions=20, rated=self.chance.random() < 0.5))

    async def forget(self) -> None:
        await self.log.forget("bob")

    async def start_over(self) -> None:
        await self.log.undo_all_feedback()
        self.feedback.clear()

    async def pass_through(self) -> None:
        pass_on(self.log)

    async def bring_in(self) -> None:
        """Import feedback of another log, some of it older than what is here."""
        if self.talks:
            target, moment = self.chance.choice(self.talks)[1], time.time()
            source: Source = "implicit" if target in self.compared else "judge"
            if source == "judge":
                self.judged.add(target)
            draft = FeedbackDraft(target, "completion_id", reward=1.0, rater="ann", source=source)
            name = self.chance.choice((feedback_id(), feedback_id().replace("fb_0", "fb_00")[:29]))
            undone_at = self.chance.choice((None, None, moment))
            made = Feedback(name, moment, "", draft, undone_at)
            await self.log.add_records([made], usability_by(RULES), trial=self.chance.random() < 0.2)
