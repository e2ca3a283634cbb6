"""Feedback in SQLite: functions on a connection. Append-only; transactions belong to the caller."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import orjson

from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.ids import feedback_id as new_feedback_id
from burnish.proxy.log.faults import TEXT_SURFACES, fault_of
from burnish.proxy.log.ratings import CompletionPlace, Effective, covered, effective, for_training
from burnish.proxy.log.store import Reader, as_json
from burnish.proxy.records import Answerer, CoveredAnswer, Fault, Feedback, FeedbackDraft, FeedbackReceipt

MOVING_TARGETS = frozenset({"last", "conversation_id", "rl"})
"""Targets that name another completion when they are resolved again later."""

ENCODED = ("tags", "idempotency_key")
DRAFT_FIELDS = tuple(field.name for field in fields(FeedbackDraft) if field.name not in ENCODED)
"""Fields of a draft that are columns as they are."""

# A rating is superseded by the latest valid one of the same rater and target with the same scope or a wider one.
COLUMNS = f"""
    id, created_at, conversation_id, {", ".join(DRAFT_FIELDS)}, tags, idempotency_key, undone_at,
    CASE WHEN reward IS NOT NULL AND undone_at IS NULL THEN (
        SELECT later.id FROM feedback AS later
        WHERE later.completion_id = feedback.completion_id AND later.rater = feedback.rater
          AND later.given_with IS feedback.given_with AND later.choice = feedback.choice
          AND (later.scope = feedback.scope OR feedback.scope = 'completion' OR later.scope = 'conversation')
          AND later.reward IS NOT NULL AND later.id > feedback.id
          AND later.id NOT IN (SELECT feedback FROM undo)
        ORDER BY later.id DESC LIMIT 1
    ) END"""  # noqa: S608 – names of our own
SOURCE = "feedback LEFT JOIN undo ON undo.feedback = feedback.id"


def add(connection: sqlite3.Connection, draft: FeedbackDraft) -> FeedbackReceipt:
    """Store feedback. What the same rater said last of the same answer isn't stored again, nor what has a known
    idempotency key.

    Raises NotFound for unknown completions, Conflict when the key was used for something else.
    """
    addition = preview(connection, draft)
    if addition.created:
        store(connection, addition.feedback)
    return addition


def preview(connection: sqlite3.Connection, draft: FeedbackDraft) -> FeedbackReceipt:
    """Return what ``add`` would, and store nothing. Raises as ``add`` does."""
    feedback, new = _resolved(connection, draft)
    return FeedbackReceipt(feedback, new, beside(connection, feedback))


def _resolved(connection: sqlite3.Connection, draft: FeedbackDraft) -> tuple[Feedback, bool]:
    """Return the record of a draft, and whether it is a new one."""
    if draft.idempotency_key is not None and (first := same_key(connection, draft)):
        return first, False
    # A key must be stored if its target may be another one when the request is repeated.
    keyed = draft.idempotency_key is not None and draft.target in MOVING_TARGETS
    if not keyed and (repeat := _said_last(connection, draft)):
        return repeat, False
    conversation = conversation_of(connection, draft.completion_id)
    return Feedback(new_feedback_id(), time.time(), conversation, draft), True


def conversation_of(connection: sqlite3.Connection, completion_id: str) -> str:
    """Raises NotFound."""
    row = connection.execute(
        "SELECT conversation_id FROM completion WHERE id = ?", (completion_id,)
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no completion {completion_id!r} in the log", param="completion_id")
    return str(row[0])


def store(connection: sqlite3.Connection, feedback: Feedback) -> None:
    draft = feedback.draft
    row = {
        "id": feedback.id,
        "created_at": feedback.created_at,
        "conversation_id": feedback.conversation_id,
        **{name: getattr(draft, name) for name in DRAFT_FIELDS},
        "tags": as_json(draft.tags),
        "idempotency_key": draft.idempotency_key,
    }
    statement = f"INSERT INTO feedback ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608
    connection.execute(statement, tuple(row.values()))


def beside(connection: sqlite3.Connection, feedback: Feedback) -> tuple[CoveredAnswer, ...]:
    if feedback.draft.scope == "completion" or feedback.draft.reward is None:
        return ()
    places = places_of(connection, [feedback.conversation_id], [feedback])
    neighbour_ids = {*covered(feedback, places)} - {feedback.draft.completion_id}
    neighbours = facts_of(connection, neighbour_ids).values() if neighbour_ids else ()
    reader = Reader(connection)
    return tuple(_covered_answer(reader, facts) for facts in neighbours)


def _covered_answer(reader: Reader, facts: Facts) -> CoveredAnswer:
    fault, table = facts.fault or ("credential" if facts.credential else None), facts.served.upstream_table
    if fault or facts.reply is None:
        return CoveredAnswer(fault, table)
    return CoveredAnswer(fault, table, *reader.exchange(facts.node, facts.reply, None, 0))


class Facts(NamedTuple):
    conversation: str
    node: int | None
    fault: Fault | None
    credential: bool
    """Whether the exchange holds a key or a token."""
    served: Answerer
    instructed: bool
    """Whether burnish added instructions to the prompt."""
    choices: int | None
    """The content that holds its choices, if there are several."""
    reply: int | None


def facts_of(connection: sqlite3.Connection, completion_ids: Iterable[str]) -> dict[str, Facts]:
    rows = connection.execute(
        f"""SELECT id, conversation_id, outcome, status, finish_reason, surface, node, reply, settings,
            definitions, choices, holds_credential, instructions IS NOT NULL, {", ".join(Answerer._fields)}
        FROM completion WHERE id IN (SELECT value FROM json_each(?))""",  # noqa: S608 – names of our own
        (as_json(completion_ids),),
    ).fetchall()
    reader, by_id = Reader(connection), {}
    for (
        name, conversation, outcome, status, reason, surface, node, reply, settings, definitions, choices, holds,
        instructed, *model
    ) in rows:  # fmt: skip
        params = reader.params(settings, definitions) if surface in TEXT_SURFACES else {}
        fault = fault_of(outcome, status, reason, has_text=bool(reply and node), params=params)
        by_id[name] = Facts(
            conversation,
            node,
            fault,
            bool(holds),
            Answerer._make(model),
            bool(instructed),
            choices,
            reply,
        )
    return by_id


def same_key(connection: sqlite3.Connection, draft: FeedbackDraft) -> Feedback | None:
    """Return the feedback of a rater with this idempotency key. Raises Conflict if it says something else."""
    pieces = select(connection, "rater = ? AND idempotency_key = ?", draft.rater, draft.idempotency_key)
    if not pieces:
        return None
    first = pieces[0].draft
    if draft.target == first.target and draft.target in MOVING_TARGETS:
        draft = replace(draft, completion_id=first.completion_id)
    if replace(draft, target=first.target) != first:
        raise Conflict(
            f"idempotency_key {draft.idempotency_key!r} was used for other feedback ({pieces[0].id}); take a new key",
            param="idempotency_key",
            feedback_id=pieces[0].id,
        )
    return pieces[0]


def _said_last(connection: sqlite3.Connection, draft: FeedbackDraft) -> Feedback | None:
    """Return what a rater said last of an answer, if it is the same."""
    statements = select(
        connection,
        "completion_id = ? AND choice = ? AND rater = ? AND given_with IS ? AND undone_at IS NULL",
        *(draft.completion_id, draft.choice, *draft.voice),
    )
    for last in statements[-1:]:
        if replace(draft, target=last.draft.target, idempotency_key=last.draft.idempotency_key) == last.draft:
            return last
    return None


def undo(connection: sqlite3.Connection, feedback_id: str) -> Feedback:
    one(connection, feedback_id)
    connection.execute("INSERT OR IGNORE INTO undo VALUES (?, ?)", (feedback_id, time.time()))
    return one(connection, feedback_id)


def undo_all(connection: sqlite3.Connection) -> int:
    """Take all feedback back; return how much counted until now."""
    statement = "INSERT OR IGNORE INTO undo SELECT id, ? FROM feedback"
    return connection.execute(statement, (time.time(),)).rowcount


def one(connection: sqlite3.Connection, feedback_id: str) -> Feedback:
    """Raises NotFound."""
    statements = select(connection, "id = ?", feedback_id)
    if not statements:
        raise NotFound(f"there is no feedback {feedback_id!r} in the log", param="id")
    return statements[0]


def select(connection: sqlite3.Connection, where: str, *values: object) -> list[Feedback]:
    """Return feedback, earliest first; ``where`` is one of our own literals, with its values bound."""
    rows = connection.execute(f"SELECT {COLUMNS} FROM {SOURCE} WHERE {where} ORDER BY id", values)  # noqa: S608
    return [_record(row) for row in rows]


FILTERS = {
    "completion_id": "completion_id = ?",
    "conversation_id": "conversation_id = ?",
    "before": "id < ?",
    "rater": "rater = ?",
    "source": "source = ?",
    "tag": "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)",
    "reward": "reward = ?",
    "above": "reward > ?",
    "below": "reward < ?",
    "version": "? = (SELECT adapter_version FROM completion WHERE completion.id = completion_id)",
}


def latest(connection: sqlite3.Connection, /, *, limit: int = 50, **filters: object) -> list[Feedback]:
    """Return feedback, latest first, also undone and superseded pieces.

    ``filters``: by the names of FILTERS. ``before`` is an ID to continue from.
    """
    where = " AND ".join(FILTERS[name] for name in filters) or "1"
    ids = f"id IN (SELECT id FROM feedback WHERE {where} ORDER BY id DESC LIMIT ?)"  # noqa: S608
    return select(connection, ids, *filters.values(), limit)[::-1]


def _record(row: tuple[Any, ...]) -> Feedback:
    feedback_id, created_at, conversation, *columns, tags, key, undone_at, superseded_by = row
    draft = FeedbackDraft(
        **dict(zip(DRAFT_FIELDS, columns, strict=True)), tags=tuple(orjson.loads(tags)), idempotency_key=key
    )
    return Feedback(feedback_id, created_at, conversation, draft, undone_at, superseded_by)


def effective_ratings(
    connection: sqlite3.Connection,
    conversations: Iterable[str] | None = None,
    rater_weights: Mapping[str, float] | None = None,
) -> dict[str, Effective]:
    """Return the effective ratings in some conversations (None: in all), by completion id.

    With ``rater_weights`` as training hears them, which needs all conversations; else as they were given.
    """
    feedback, places = in_conversations(connection, conversations, rater_weights)
    return effective(feedback, places)


def given_in(connection: sqlite3.Connection, conversations: Iterable[str] | None) -> list[Feedback]:
    """Return all feedback in some conversations (None: in all), earliest first, undone and superseded too."""
    if conversations is None:
        return select(connection, "1")
    return select(connection, "conversation_id IN (SELECT value FROM json_each(?))", as_json(conversations))


def places_of(
    connection: sqlite3.Connection, conversations: Iterable[str], feedback: Iterable[Feedback]
) -> list[CompletionPlace]:
    """Return the completions in some conversations that feedback may be about: those with a reply, and its targets."""
    by_conversation = places_by_conversation(connection, conversations, feedback)
    return [place for places in by_conversation.values() for place in places]


def places_by_conversation(
    connection: sqlite3.Connection, conversations: Iterable[str], feedback: Iterable[Feedback]
) -> dict[str, list[CompletionPlace]]:
    """Return what ``places_of`` does, by conversation."""
    targets = {statement.draft.completion_id for statement in feedback}
    rows = connection.execute(
        """SELECT conversation_id, id, continues, begins_turn, created_at, reply IS NOT NULL FROM completion
        WHERE conversation_id IN (SELECT value FROM json_each(?))""",
        (as_json(conversations),),
    )
    places: dict[str, list[CompletionPlace]] = {}
    for conversation, name, continues, begins_turn, created_at, replied in rows:
        if replied or name in targets:
            place = CompletionPlace(name, continues, bool(begins_turn), created_at)
            places.setdefault(conversation, []).append(place)
    return places


def in_conversations(
    connection: sqlite3.Connection,
    conversations: Iterable[str] | None,
    rater_weights: Mapping[str, float] | None = None,
) -> tuple[list[Feedback], list[CompletionPlace]]:
    """Return what ``effective`` needs of some conversations (None: of all); ``rater_weights`` as for the ratings."""
    feedback = given_in(connection, conversations)
    names = {statement.conversation_id for statement in feedback}
    if rater_weights is not None:
        feedback = for_training(feedback, rater_weights)
    return feedback, places_of(connection, names, feedback)
