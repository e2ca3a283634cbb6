"""Whole records into the log and out of it: functions on a connection. Transactions belong to the caller.

Records keep their IDs, so what is already there is told by its ID and never stored twice. Foreign feedback has no ID:
its idempotency key tells it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import astuple, replace
from typing import Any, NamedTuple

import orjson

from burnish.proxy.http.errors import BurnishError
from burnish.proxy.ids import LENGTH
from burnish.proxy.ids import feedback_id as new_feedback_id
from burnish.proxy.log import duels, feedback, queries
from burnish.proxy.log.capture import Continuation, Parsed, parameters
from burnish.proxy.log.duels import Duel
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.instructions import InstructionRow
from burnish.proxy.log.intake import Intake
from burnish.proxy.log.rated import Rating, weighed, with_texts
from burnish.proxy.log.store import NODE, Reader, row_of, select
from burnish.proxy.log.tree import path, step
from burnish.proxy.records import (
    Completion,
    CoveredAnswer,
    Feedback,
    FeedbackDraft,
    Passthrough,
    RatedCompletion,
    RejectedAnswer,
    Usability,
)

Record = Completion | Feedback | Passthrough | Duel | InstructionRow


class Outcome(NamedTuple):
    """What became of one record."""

    new: bool
    """False: it is in the log already, or it was refused."""
    refused: str | None = None
    """Why it can't be stored."""
    usable: bool | None = None
    """Of feedback: whether training can use it."""
    reason: str | None = None
    """Why training can't use it, or a part of it."""


class TriedOnly(Exception):
    """Takes the outcomes of a trial past the rollback."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__("nothing is stored")
        self.outcomes = outcomes


DUPLICATE = Outcome(new=False)


Usable = Callable[[FeedbackDraft, Completion, RejectedAnswer | None, Sequence[CoveredAnswer]], Usability]
"""Tells whether feedback can teach something; see ``feedback.usability``."""


def add(
    connection: sqlite3.Connection, records: Sequence[Record], usable: Usable, *, trial: bool
) -> list[Outcome]:
    """Store records; returns the outcome of each. A refused one doesn't keep the others out.

    ``trial``: raises TriedOnly instead, so that the caller's transaction takes everything back.
    """
    importer = _Importer(connection, usable)
    outcomes = [importer.add(record) for record in records]
    if trial:
        raise TriedOnly(outcomes)
    return outcomes


class _Importer:
    def __init__(self, connection: sqlite3.Connection, usable: Usable) -> None:
        self._connection = connection
        self._usable = usable
        self._intake = Intake(connection)

    def add(self, record: Record) -> Outcome:
        """Store one record, or say why it can't be stored. Raises sqlite3.Error for faults of the database only."""
        self._connection.execute("SAVEPOINT record")
        try:
            return self._add(record)
        except (
            BurnishError,
            sqlite3.IntegrityError,
            sqlite3.DataError,
            OverflowError,
            UnicodeError,
        ) as error:
            self._connection.execute("ROLLBACK TO record")
            self._intake.forget()
            return Outcome(new=False, refused=str(error))
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE record")

    def _add(self, record: Record) -> Outcome:
        if isinstance(record, Feedback):
            return self._feedback(record)
        if _is_stored(self._connection, record):
            return DUPLICATE
        if isinstance(record, Completion):
            self._intake.add([as_parsed(record)])
        elif isinstance(record, Passthrough):
            self._intake.add([record])
        elif isinstance(record, Duel):
            duels.add(self._connection, record)
        else:
            self._connection.execute("INSERT INTO instruction VALUES (?, ?, ?, ?, ?)", astuple(record))
        return Outcome(new=True)

    def _feedback(self, statement: Feedback) -> Outcome:
        row = feedback.select(self._connection, "id = ?", statement.id) if statement.id else []
        if row:
            return DUPLICATE._replace(**self._usability(row[0]))
        if statement.id:
            conversation = feedback.conversation_of(self._connection, statement.draft.completion_id)
            record = replace(statement, conversation_id=conversation)
            feedback.store(self._connection, record)
            if record.undone_at is not None:
                self._connection.execute("INSERT INTO undo VALUES (?, ?)", (record.id, record.undone_at))
            return Outcome(new=True, **self._usability(record))
        if earlier := feedback.same_key(self._connection, statement.draft):
            return DUPLICATE._replace(**self._usability(earlier))
        return self._feedback(
            replace(statement, id=new_feedback_id(), created_at=statement.created_at or time.time())
        )

    def _usability(self, statement: Feedback) -> dict[str, Any]:
        """Return ``usable`` and ``reason``, as the answer to a rating has them; nothing of what was taken back."""
        if statement.undone_at is not None:
            return {}
        draft = statement.draft
        reader = Reader(self._connection)
        row = row_of(self._connection, draft.completion_id)
        target = reader.completion(row, full=True)
        worse = reader.worse(row[NODE], draft.answer, draft.preferred_over) if draft.preferred_over else None
        neighbours = feedback.beside(self._connection, statement)
        return self._usable(draft, target, worse, neighbours)._asdict()


def _is_stored(
    connection: sqlite3.Connection, record: Completion | Passthrough | Duel | InstructionRow
) -> bool:
    table = {Completion: "completion", Passthrough: "passthrough", Duel: "duel"}.get(
        type(record), "instruction"
    )
    return connection.execute(f"SELECT 1 FROM {table} WHERE id = ?", (record.id,)).fetchone() is not None  # noqa: S608


def as_parsed(completion: Completion) -> Parsed:
    """Return a completion as the writer stores one that came over the wire."""
    context = tuple(path(completion.messages))
    settings, definitions = parameters(completion.params)
    choices = [
        {"index": choice.index, "finish_reason": choice.finish_reason, "message": choice.reply}
        | ({} if choice.prompt is None else {"prompt": choice.prompt})
        for choice in completion.choices
    ]
    place = Continuation(completion.conversation_id, completion.continues)
    return Parsed(
        completion,
        context=context,
        settings=settings,
        definitions=definitions,
        reply=step(completion.reply, context[-1] if context else None) if completion.reply else None,
        choices=orjson.dumps(choices) if choices else None,
        continuation=place if completion.conversation_id else None,
    )


def records(
    connection: sqlite3.Connection, after_id: str, limit: int, user: str | None = None
) -> list[Record]:
    """Return completions with their contexts, feedback, passthroughs and duels, earliest first.

    ``after_id``: the ID to continue from, or "". ``user``: only theirs, and no duels. Undone and superseded feedback is
    included.
    """
    moment = after_id[-LENGTH:]
    whose, own = ("", ()) if user is None else ("caller = ? AND", (user,))
    clauses = f"WHERE {whose} id > ? ORDER BY id LIMIT ?"
    reader = Reader(connection)
    page: list[Record] = [
        reader.completion(row, None, full=True)
        for row in select(connection, clauses, (*own, f"cmpl_{moment}", limit))
    ]
    ids = f"id IN (SELECT id FROM feedback {clauses.replace('caller', 'rater')})"  # noqa: S608
    page += feedback.select(connection, ids, *own, f"fb_{moment}", limit)
    page += queries.passthroughs_where(connection, clauses, (*own, f"pass_{moment}", limit))
    if user is None:
        # Open pairs of the gate's replies are about versions, which stay here.
        open_or_judged = "WHERE id > ? AND sampled IS NULL ORDER BY id LIMIT ?"
        page += duels.select(connection, open_or_judged, f"duel_{moment}", limit)
    return sorted(page, key=lambda record: record.id[-LENGTH:])[:limit]


class RatedAnswer(NamedTuple):
    """A rated answer as a dataset needs it."""

    rated: RatedCompletion
    opposed: tuple[dict[str, Any], ...]
    """Other answers to the same context that were rated bad, if this one was rated good."""


def rated_answers(
    connection: sqlite3.Connection, after_id: str, limit: int, rules: Rules
) -> tuple[list[RatedAnswer], str | None]:
    """Return what counts of the feedback in some conversations, and the conversation to continue after, if any.

    Ratings are as they were given. ``after_id``: a conversation, or "".
    """
    rows = connection.execute(
        "SELECT DISTINCT conversation_id FROM feedback WHERE conversation_id > ? ORDER BY conversation_id LIMIT ?",
        (after_id, limit + 1),
    ).fetchall()
    names = [name for (name,) in rows[:limit]]
    reader = Reader(connection)
    answers = []
    for rating in _ratings(connection, names, rules):
        row = row_of(connection, rating.completion_id)
        same_prompt = rating.reward > 0 and reader.prompt_of(rating.answer) is None
        opposed = _opposed(connection, reader, row, rules) if same_prompt else ()
        answers.append(RatedAnswer(with_texts(reader, row, rating), opposed))
    return answers, names[-1] if len(rows) > limit else None


def _ratings(
    connection: sqlite3.Connection, conversations: Collection[str], rules: Rules
) -> Iterator[Rating]:
    effective = feedback.effective_ratings(connection, conversations)
    return weighed(connection, effective, replace(rules, next_turns=False))


def _opposed(
    connection: sqlite3.Connection, reader: Reader, row: Any, rules: Rules
) -> tuple[dict[str, Any], ...]:
    """Return the other answers to the context of a good one that were rated bad and can teach."""
    rows = select(connection, "WHERE node = ? AND id != ? AND reply IS NOT NULL", (row[NODE], row[0]))
    if not rows:
        return ()
    rivals = {row[0]: row for row in rows}
    return tuple(
        reply
        for rating in _ratings(connection, {row[1] for row in rows}, rules)
        if rating.reward < 0 and not rating.fault and rating.answer in rivals
        if (reply := reader.completion(rivals[rating.answer], full=False).reply)
    )
