"""What the log holds and what was said of it, in figures. They are kept up to date, so asking costs what is new."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from burnish.proxy.log import feedback
from burnish.proxy.log.changes import Change, Changes
from burnish.proxy.log.ratings import (
    Place,
    Rater,
    RatingFigure,
    for_training,
    rater_figures,
    raters,
    rating_figures,
)
from burnish.proxy.records import Feedback

Figure = TypeVar("Figure")

ADDED = {
    "completions": "SELECT count(*), max(n) FROM completion WHERE n > ?1",
    "conversations": """SELECT count(*), (SELECT max(n) FROM completion) FROM
        (SELECT DISTINCT +conversation_id AS name FROM completion WHERE n > ?1) WHERE NOT EXISTS (
            SELECT 1 FROM completion WHERE conversation_id = name AND n <= ?1
        )""",
    "passthrough": "SELECT count(*), max(n) FROM passthrough WHERE n > ?1",
    "feedback": "SELECT count(*), max(rowid) FROM feedback WHERE rowid > ?1",
}
"""How many there are behind a row, and the last row. (The + keeps SQLite from reading the whole index.)"""
ALL = ADDED | {"conversations": "SELECT count(DISTINCT conversation_id), max(n) FROM completion WHERE ?1 = 0"}
"""The same from the beginning."""

RATINGS: tuple[RatingFigure, ...] = ("ratings", "good", "bad", "comments", "corrections")


class Totals:
    """One thread at a time. ``deletions``, in its methods, grows whenever rows are deleted."""

    def __init__(self) -> None:
        self._deletions = -1
        self._counts: dict[str, int] = {}
        self._last: dict[str, int] = {}
        """The last row that was counted."""
        self._ratings = _Sums(rating_figures, scaled=False)
        self._raters = _Sums(rater_figures, scaled=True)

    def counts(self, connection: sqlite3.Connection, deletions: int) -> dict[str, int]:
        """Count rows, and effective ratings: a rating of several answers is one."""
        if deletions != self._deletions:
            self._deletions, self._counts, self._last = deletions, dict.fromkeys(ADDED, 0), {}
        for name, later in ADDED.items():
            before = self._last.get(name, 0)
            added, last = connection.execute(later if before else ALL[name], (before,)).fetchone()
            self._counts[name] += added
            self._last[name] = last or before
        ratings = self._ratings.total(connection, deletions)
        return self._counts | {name: ratings.get(name, 0) for name in RATINGS}

    def raters(self, connection: sqlite3.Connection, deletions: int) -> list[Rater]:
        """Return all raters, those with most ratings first, and how far they agree."""
        return raters(self._raters.total(connection, deletions))

    def agreement_with_judges(self, connection: sqlite3.Connection, deletions: int) -> tuple[int, int]:
        """Return on how many answers judges and people agree, and how many answers both found good or bad."""
        ratings = self._ratings.total(connection, deletions)
        return ratings.get("judged_as_rated", 0), ratings.get("judged_and_rated", 0)


class _Sums(Generic[Figure]):
    """Figures of conversations, and their sums."""

    def __init__(
        self, count: Callable[[Sequence[Feedback], Iterable[Place]], Counter[Figure]], *, scaled: bool
    ) -> None:
        """``count`` takes what was said in a conversation; ``scaled``: as training hears it."""
        self._count = count
        self._scaled = scaled
        self._changes = Changes(scaled=scaled)
        self._figures: dict[str, Counter[Figure]] = {}
        """By conversation."""
        self._total: Counter[Figure] = Counter()

    def total(self, connection: sqlite3.Connection, deletions: int) -> Mapping[Figure, int]:
        with self._changes.look(connection, deletions) as change:
            if change:
                self._update(connection, change)
        return self._total

    def _update(self, connection: sqlite3.Connection, change: Change) -> None:
        if change.anew:
            self._figures, self._total = {}, Counter()
        used = for_training(change.feedback, {}, change.habits) if self._scaled else change.feedback
        places = feedback.places_by_conversation(connection, change.conversations, used)
        by_conversation: dict[str, list[Feedback]] = defaultdict(list)
        for each in used:
            by_conversation[each.conversation_id].append(each)
        for name in change.conversations:
            self._total.subtract(self._figures.pop(name, {}))
            if figures := +self._count(by_conversation[name], places.get(name, ())):
                self._figures[name] = figures
                self._total.update(figures)
