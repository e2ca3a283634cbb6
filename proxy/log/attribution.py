"""Finds completions by the messages that a client sends back: the conversation of a request, and the answer meant.

First by key: the path to the reply, message by message. If the client rewrote the reply itself (an agent that renders
calls as text), by the path before it. If it rewrote earlier messages (a time in the system prompt, a compaction), by
the reply's own identity, with the words before it as a witness.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence, Set
from itertools import islice
from typing import Any, NamedTuple

import orjson

from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.log.capture import Continuation, Parsed, parameters, with_held
from burnish.proxy.log.store import IS_BEST, Reader, as_json, row_of, select
from burnish.proxy.log.tree import Digest, PathStep, last_user_message, loaded, path, step
from burnish.proxy.messages import SYSTEM_ROLES
from burnish.proxy.records import Completion, RequestFacts
from burnish.proxy.surfaces.base import inherited
from burnish.proxy.surfaces.items import Answers, references, resolved, response_named

HISTORY_AT_SERVER = (
    "the server holds this conversation, so its last answer is unknown here: rate it by its completion_id, or with "
    "`burnish good`"
)

DISTINCTIVE_BYTES = 40
"""A stored reply at least this long identifies its conversation; "OK." occurs in many."""

RETRY_WINDOW = 1000
"""Completions; a client's retry follows its first attempt closely."""

RENDERED_WITHIN_S = 3600.0
"""An agent's next step follows the last one within this time."""

MOST_REPLIES = 64
"""Latest replies of a context that are looked for: it may have 50,000."""

MAX_CANDIDATES = 200
"""Equal replies that are compared, latest first."""

CANDIDATES = f"""SELECT id, conversation_id, session, caller, node, prompt, created_at
    FROM completion WHERE %s = ? AND {IS_BEST} ORDER BY n DESC LIMIT {MAX_CANDIDATES}"""  # noqa: S608
BY_KEY, BY_IDENTITY, BY_RESPONSE, BY_CONTEXT = (
    CANDIDATES % column
    for column in ("reply_key", "reply_identity", "response_id", "reply IS NOT NULL AND node")
)

BY_ITEM = """SELECT response_item.id, completion.reply, completion.id FROM response_item
    JOIN completion ON completion.id = response_item.completion
    WHERE response_item.id IN (SELECT value FROM json_each(?)) AND caller = ?"""


class Match(NamedTuple):
    id: str
    conversation_id: str
    session: str | None
    caller: str
    node: int | None
    prompt: int | None
    created_at: float


def continuation(connection: sqlite3.Connection, parsed: Parsed) -> Continuation | None:
    """Return where a completion belongs: the conversation of the nearest reply in its context that the log knows."""
    asked_by, context = parsed.completion.asked, parsed.context
    latest = (index for index in reversed(range(len(context))) if context[index].role == "assistant")
    replies = list(islice(latest, MOST_REPLIES))
    if not replies:
        return _first_attempt(connection, parsed) if asked_by.retry else None
    for index in replies:
        if matches := _by_key(connection, context[index]):
            nearest = preferred(matches, asked_by.session, asked_by.caller)[0]
            if index == replies[0]:
                return Continuation(nearest.conversation_id, nearest.id)
            same = _only(connection, context, replies[0], _same_reply(connection, parsed, replies[0]))
            rendered = [] if same else _same_context(connection, parsed, replies[0])
            return Continuation(nearest.conversation_id, same.id if same else _single(rendered))
    if rendered := _same_context(connection, parsed, replies[0]):
        return Continuation(rendered[0].conversation_id, _single(rendered))
    for index in replies:
        if matches := _same_reply(connection, parsed, index):
            same = _only(connection, context, index, matches) if index == replies[0] else None
            return Continuation((same or matches[0]).conversation_id, same.id if same else None)
    return _first_attempt(connection, parsed) if asked_by.retry else None


def answer_before(
    connection: sqlite3.Connection, messages: Sequence[dict[str, Any]], caller: str, session: str | None
) -> str:
    """Return the id of the completion that is the last assistant message of a history.

    Raises NotFound, and Conflict when several are equally likely.
    """
    context = path(messages)
    index = next((i for i in reversed(range(len(context))) if context[i].role == "assistant"), None)
    if index is None:
        raise NotFound("there is no answer in this conversation yet")
    if any(references(messages[index])):
        raise NotFound(HISTORY_AT_SERVER)
    matches = _by_key(connection, context[index])
    if matches:
        return preferred(matches, session, caller)[0].id
    matches = [
        candidate
        for candidate in preferred(_by_identity(connection, context[index]), session, caller)
        if candidate.caller == caller
    ]
    question = last_user_message(context[:index])
    witnessed = [candidate for candidate in matches if _answered(connection, candidate, question)]
    in_session = [candidate for candidate in matches if session and candidate.session == session]
    likely = [candidate for candidate in witnessed if candidate in in_session] or witnessed or in_session
    if not matches:
        raise NotFound(
            "the last answer of this conversation is not in the log: it did not come through burnish"
        )
    options = likely or (matches if _is_distinctive(context[index]) else [])
    if answer := _only(connection, context, index, options):
        return answer.id
    raise Conflict(
        "answers that read exactly like the last one here are logged, perhaps of other conversations: "
        "rate it by its completion_id",
        candidates=candidates(likely or matches),
    )


def candidates(matches: Sequence[Match]) -> list[dict[str, Any]]:
    return [
        {
            "completion_id": candidate.id,
            "conversation_id": candidate.conversation_id,
            "created_at": candidate.created_at,
        }
        for candidate in matches
    ]


def by_response(connection: sqlite3.Connection, response_id: str) -> list[Match]:
    """Return the completions whose response body carried this id, latest first."""
    return [Match(*row) for row in connection.execute(BY_RESPONSE, (response_id,))]


def preferred(matches: Iterable[Match], session: str | None, caller: str) -> list[Match]:
    """Sort by session, then caller, then time (latest first, as they come)."""
    return sorted(
        matches,
        key=lambda candidate: (not session or candidate.session != session, candidate.caller != caller),
    )


def _by_key(connection: sqlite3.Connection, reply: PathStep) -> list[Match]:
    return [Match(*row) for row in connection.execute(BY_KEY, (reply.key,))]


def _by_identity(connection: sqlite3.Connection, reply: PathStep) -> list[Match]:
    if reply.empty:
        return []
    return [Match(*row) for row in connection.execute(BY_IDENTITY, (reply.identity,))]


def _same_reply(connection: sqlite3.Connection, parsed: Parsed, index: int) -> list[Match]:
    """Return the completions with this reply that may belong to the same conversation."""
    reply = parsed.context[index]
    same_people = _of_same_people(_by_identity(connection, reply), parsed.completion.asked)
    question = last_user_message(parsed.context[:index]) if same_people else None
    witnessed = [candidate for candidate in same_people if _answered(connection, candidate, question)]
    return witnessed or (same_people if _is_distinctive(reply) else [])


def _same_context(connection: sqlite3.Connection, parsed: Parsed, index: int) -> list[Match]:
    """Return the completions that answered exactly the messages before a reply; all belong to one conversation.

    If an agent asked the same in several conversations, the next step belongs to the only one that waits for it.
    """
    request, history = parsed.completion.asked, parsed.context[:index]
    if not any(message.human for message in history):
        return []
    node = connection.execute("SELECT id FROM node WHERE digest = ?", (history[-1].node,)).fetchone()
    rows = connection.execute(BY_CONTEXT, node) if node else ()
    matches = [
        candidate
        for candidate in _of_same_people(map(Match._make, rows), request)
        if candidate.created_at >= request.created_at - RENDERED_WITHIN_S
    ]
    matches = [candidate for candidate in matches if candidate.session == request.session] or matches
    if _conversations(matches) > 1:
        links = "SELECT 1 FROM completion WHERE continues = ?"
        matches = [
            candidate for candidate in matches if not connection.execute(links, (candidate.id,)).fetchone()
        ]
    return matches if _conversations(matches) == 1 else []


def _of_same_people(matches: Iterable[Match], request: RequestFacts) -> list[Match]:
    return [
        candidate
        for candidate in preferred(matches, request.session, request.caller)
        if candidate.caller == request.caller
        and (candidate.session == request.session or not (candidate.session and request.session))
    ]


def _conversations(matches: Sequence[Match]) -> int:
    return len({candidate.conversation_id for candidate in matches})


def _single(matches: Sequence[Match]) -> str | None:
    return matches[0].id if len(matches) == 1 else None


def _is_distinctive(reply: PathStep) -> bool:
    return len(reply.body) >= DISTINCTIVE_BYTES


def _answered(connection: sqlite3.Connection, candidate: Match, question: PathStep | None) -> bool:
    if question is None or candidate.prompt is None:
        return False
    (body,) = connection.execute("SELECT body FROM content WHERE id = ?", (candidate.prompt,)).fetchone()
    return step(loaded(body), None).identity == question.identity


def _only(
    connection: sqlite3.Connection, context: Sequence[PathStep], index: int, matches: Sequence[Match]
) -> Match | None:
    """Return the candidate that shares most of the messages before a reply; None if several share as many.

    Of several that answer the same messages it is the first.
    """
    if len({candidate.node for candidate in matches}) <= 1:
        return next(iter(matches), None)
    own = _identities(context[:index])
    histories = [_identities(path(Reader(connection).path(candidate.node))) for candidate in matches]
    shared = [_shared(own, history) for history in histories]
    nearest = [place for place, count in enumerate(shared) if count == max(shared)]
    whole = [place for place in nearest if len(histories[place]) == len(own) == shared[place]]
    if whole or len(nearest) == 1:
        return matches[(whole or nearest)[0]]
    return None


def _identities(context: Sequence[PathStep]) -> list[Digest]:
    """Return the messages, latest first, without system prompts: those change by themselves."""
    return [message.identity for message in reversed(context) if message.role not in SYSTEM_ROLES]


def _shared(first: Sequence[Digest], second: Sequence[Digest]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def _first_attempt(connection: sqlite3.Connection, parsed: Parsed) -> Continuation | None:
    """Return where the request belongs that this request repeats."""
    if not parsed.context:
        return None
    row = connection.execute(
        """SELECT conversation_id, continues FROM completion JOIN node ON node.id = completion.node
        WHERE node.digest = ? AND caller = ? AND n > (SELECT max(n) FROM completion) - ?
        ORDER BY n DESC LIMIT 1""",
        (parsed.context[-1].node, parsed.completion.asked.caller, RETRY_WINDOW),
    ).fetchone()
    return Continuation(*row) if row else None


def continued(connection: sqlite3.Connection, parsed: Parsed) -> Parsed:
    """Return a completion with its whole context, and the conversation that it continues.

    What the log doesn't have is marked (``items.held``), also if another caller got the response: some servers use
    small numbers as IDs, and messages of other callers must not get into it.
    """
    request = parsed.completion.asked
    originals = [loaded(message.body) for message in parsed.context]
    messages = with_answers(connection, originals, request.caller) if parsed.has_references else originals
    predecessor = (
        _answer(connection, parsed.previous, request.caller, request.session) if parsed.previous else None
    )
    settings: dict[str, Any] = orjson.loads(parsed.settings) if parsed.settings else {}
    failed = predecessor and predecessor.reply is None and predecessor.ended.error
    if parsed.previous and not (predecessor and (failed or _is_whole(predecessor))):
        messages = with_held(messages, settings, parsed.previous)
    if predecessor:
        first = 1 if _instructed(settings) else 0
        messages = [*messages[:first], *_history(predecessor), *messages[first:]]
        place = Continuation(predecessor.conversation_id, predecessor.id if predecessor.reply else None)
        parsed = parsed._replace(continuation=place)
        if "thread" in settings:
            parsed = _inheriting(parsed, settings, predecessor)
    if messages == originals:
        return parsed
    context, reply = tuple(path(messages)), parsed.reply
    if reply:
        reply = step(loaded(reply.body), context[-1] if context else None)
    return parsed._replace(context=context, reply=reply)


def with_answers(
    connection: sqlite3.Connection, messages: Sequence[dict[str, Any]], caller: str
) -> list[dict[str, Any]]:
    """Return messages with the answers to a caller in the place of the names of their items."""
    names = {name for message in messages for name in references(message)}
    return resolved(messages, _answers_with(connection, names, caller)) if names else [*messages]


def _answers_with(connection: sqlite3.Connection, names: Set[str], caller: str) -> Answers:
    """Return the answers to a caller that have items of these names; none if several say different things."""
    responses = {name: response for name in names if (response := response_named(name))}
    holders: dict[str, dict[int, str]] = {}
    for name, reply, holder in connection.execute(BY_ITEM, (as_json(names - responses.keys()), caller)):
        holders.setdefault(name, {})[reply] = holder
    single = {name: min(same.values()) for name, same in holders.items() if len(same) == 1}
    where = """WHERE caller = ? AND (response_id IN (SELECT value FROM json_each(?))
        OR id IN (SELECT value FROM json_each(?)))"""
    rows = select(connection, where, (caller, as_json(responses.values()), as_json(single.values())))
    reader = Reader(connection)
    reader.load(rows)
    completions = [reader.completion(row, full=False) for row in rows]
    by_id = {completion.ended.response_id or "": completion for completion in completions}
    by_id |= {completion.id: completion for completion in completions if _is_whole(completion)}
    answers = {name: by_id.get(place) for name, place in (responses | single).items()}
    return {name: (answer.id, answer.reply) for name, answer in answers.items() if answer and answer.reply}


def _is_whole(answer: Completion) -> bool:
    """True if the log has the answer as the upstream has it."""
    return answer.reply is not None and answer.ended.outcome == "complete"


def _inheriting(parsed: Parsed, settings: dict[str, Any], predecessor: Completion) -> Parsed:
    large = orjson.loads(parsed.definitions) if parsed.definitions else {}
    small, definitions = parameters(inherited(settings | large, predecessor.params))
    return parsed._replace(settings=small, definitions=definitions)


def held_up_to(
    connection: sqlite3.Connection, name: str, caller: str, session: str | None
) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """Return the messages up to a response to a caller, and the response; and its request's parameters.

    None if the log has no such response. ``name`` is the ID of the response.
    """
    predecessor = _answer(connection, name, caller, session)
    return (_history(predecessor), predecessor.params) if predecessor else None


def _answer(connection: sqlite3.Connection, name: str, caller: str, session: str | None) -> Completion | None:
    own = [candidate for candidate in by_response(connection, name) if candidate.caller == caller]
    rows = [row_of(connection, candidate.id) for candidate in preferred(own, session, caller)[:1]]
    return Reader(connection).completion(rows[0], full=True) if rows else None


def _history(predecessor: Completion) -> list[dict[str, Any]]:
    """Return the messages of a completion, without instructions: those were for that request only."""
    messages = predecessor.messages[1:] if _instructed(predecessor.params) else predecessor.messages
    return [*messages, predecessor.reply] if predecessor.reply else [*messages]


def _instructed(params: dict[str, Any]) -> bool:
    return params.get("instructions") is True
