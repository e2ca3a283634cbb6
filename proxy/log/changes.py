"""Finds the conversations whose feedback counts differently since the last look, and reads no others.

Reading all ratings again after each new one takes a second at 20,000. So a tally keeps what each conversation counts
for, and counts those again that changed. Deleting anything starts it from scratch.

With ``scaled``, grades are counted on their rater's own scale, so one more grade may move others of that rater between
good and bad. Those change, too: the ones between the old mean and the new, and all that share a conversation with other
raters.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from burnish.proxy.log import feedback
from burnish.proxy.log.ratings import Habit, grades_of, habits_of
from burnish.proxy.records import Feedback, RaterKey


class Recount(NamedTuple):
    anew: bool
    """Whether nothing that was counted before still holds."""
    conversations: set[str]
    feedback: list[Feedback]
    """All that was said in them, undone and superseded too; in each conversation earliest first."""
    habits: Mapping[RaterKey, Habit]
    """Of all raters; empty unless ``scaled``."""


class _Position(NamedTuple):
    """How far the log was read: how often something had been deleted, and the last row of each table."""

    deletions: int
    feedback: int
    undo: int
    completion: int


class Changes:
    """Reads what changed. One thread at a time."""

    def __init__(self, *, scaled: bool, next_turns: bool = False) -> None:
        """``next_turns``: what the user said next counts, so each new completion may change its conversation."""
        self._scaled = scaled
        self._next_turns = next_turns
        self._position: _Position | None = None
        self._watched: set[str] = set()
        """Conversations where a new completion can change what a rating is about."""
        self._grades: dict[RaterKey, Counter[float]] = {}
        self._graded: dict[RaterKey, dict[float | None, set[str]]] = {}
        """By rater and grade: the conversations. None: several people rated in them."""
        self._grades_in: dict[str, Mapping[RaterKey, Counter[float]]] = {}
        """By conversation."""

    @contextmanager
    def look(self, connection: sqlite3.Connection, deletions: int) -> Iterator[Recount | None]:
        """Give what changed since the last look; None: nothing. If the block fails, the next look starts from scratch.

        ``deletions`` grows whenever rows are deleted.
        """
        start, position = self._position, _position(connection, deletions)
        self._position = None
        yield self._change(connection, start, position) if position != start else None
        self._position = position

    def _change(
        self, connection: sqlite3.Connection, start: _Position | None, position: _Position
    ) -> Recount | None:
        if start is None or start.deletions != position.deletions:
            self._watched, self._grades, self._graded, self._grades_in = set(), {}, {}, {}
            return self._read(connection, None)
        conversations = self._changed(connection, start)
        return self._read(connection, conversations) if conversations else None

    def _changed(self, connection: sqlite3.Connection, since: _Position) -> set[str]:
        rows = connection.execute(
            """SELECT conversation_id FROM feedback WHERE rowid > ?
            UNION SELECT conversation_id FROM undo JOIN feedback ON feedback.id = undo.feedback WHERE undo.rowid > ?""",
            (since.feedback, since.undo),
        )
        conversations = {conversation for (conversation,) in rows}
        if self._watched:
            rows = connection.execute(
                "SELECT DISTINCT conversation_id FROM completion WHERE n > ?", (since.completion,)
            )
            conversations |= self._watched & {conversation for (conversation,) in rows}
        return conversations

    def _read(self, connection: sqlite3.Connection, conversations: set[str] | None) -> Recount:
        """Read the feedback in some conversations (None: in all), and in those that follow from it."""
        statements = feedback.given_in(connection, conversations)
        names = (
            conversations
            if conversations is not None
            else {statement.conversation_id for statement in statements}
        )
        old_habits = habits_of(self._grades)
        self._note(names, statements)
        habits = habits_of(self._grades)
        moved = set[str]() if conversations is None else self._moved(old_habits, habits) - names
        if moved:
            statements += feedback.given_in(connection, moved)
        return Recount(conversations is None, names | moved, statements, habits)

    def _note(self, names: Iterable[str], statements: Sequence[Feedback]) -> None:
        """Note the grades of some conversations, of which all feedback is given, and which of them to watch."""
        by_conversation: dict[str, list[Feedback]] = defaultdict(list)
        for statement in statements:
            by_conversation[statement.conversation_id].append(statement)
        for name in names:
            own = by_conversation[name]
            if self._scaled:
                self._set_grades(name, own)
            if self._next_turns or any(statement.draft.scope != "completion" for statement in own):
                self._watched.add(name)

    def _set_grades(self, name: str, own: Sequence[Feedback]) -> None:
        for rater, counter in self._grades_in.pop(name, {}).items():
            self._grades[rater].subtract(counter)
            for grade in (None, *counter):
                self._graded[rater].get(grade, set()).discard(name)
        grades = grades_of(own)
        several = len({statement.draft.voice for statement in own if statement.draft.reward is not None}) > 1
        for rater, counter in grades.items():
            self._grades.setdefault(rater, Counter()).update(counter)
            for grade in (None,) if several else counter:
                self._graded.setdefault(rater, {}).setdefault(grade, set()).add(name)
        if grades:
            self._grades_in[name] = grades

    def _moved(self, old: Mapping[RaterKey, Habit], new: Mapping[RaterKey, Habit]) -> set[str]:
        """Return the conversations whose grades may have changed sides because their rater's habit changed."""
        moved: set[str] = set()
        for rater in old.keys() | new.keys():
            if old.get(rater) == new.get(rater):
                continue
            # Without a habit a grade counts as it is: good above 0.
            low, high = sorted(habits[rater].mean if rater in habits else 0.0 for habits in (old, new))
            for grade, conversations in self._graded.get(rater, {}).items():
                if grade is None or low <= grade <= high:
                    moved |= conversations
        return moved


def _position(connection: sqlite3.Connection, deletions: int) -> _Position:
    latest = connection.execute(
        """SELECT coalesce((SELECT max(rowid) FROM feedback), 0), coalesce((SELECT max(rowid) FROM undo), 0),
        coalesce((SELECT max(n) FROM completion), 0)"""
    ).fetchone()
    return _Position(deletions, *latest)
