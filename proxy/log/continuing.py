"""Requests that name earlier messages instead of sending them: the log adds those messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import orjson

from burnish.proxy.log.attribution import by_response, preferred
from burnish.proxy.log.capture import Continuation, Parsed
from burnish.proxy.log.store import Reader, row_of, select
from burnish.proxy.log.tree import loaded, path, step
from burnish.proxy.records import Completion
from burnish.proxy.surfaces.items import completion_named, references, resolved


def continued(connection: sqlite3.Connection, parsed: Parsed) -> Parsed:
    """Return a completion with its whole context, and the conversation that it continues.

    It stays as it was sent if the log knows no such response to the same caller: some servers use small numbers as
    IDs, and messages of other callers must not get into it.
    """
    asked = parsed.completion.asked
    sent = [loaded(each.body) for each in parsed.context]
    messages = with_answers(connection, sent, asked.caller) if parsed.named else sent
    before = _answer(connection, parsed.previous, asked.caller, asked.session) if parsed.previous else None
    if before:
        instructions = 1 if parsed.settings and _instructed(orjson.loads(parsed.settings)) else 0
        messages = [*messages[:instructions], *_history(before), *messages[instructions:]]
        place = Continuation(before.conversation_id, before.id if before.reply else None)
        parsed = parsed._replace(continuation=place)
    if messages == sent:
        return parsed
    context, message = tuple(path(messages)), parsed.message
    return parsed._replace(
        context=context,
        reply=step(message, context[-1] if context else None) if message else None,
    )


def with_answers(
    connection: sqlite3.Connection, messages: Sequence[dict[str, Any]], caller: str
) -> list[dict[str, Any]]:
    """Return messages with the answers to a caller in the place of the names of their items."""
    names = {completion_named(name) for message in messages for name in references(message)} - {None}
    where = "WHERE caller = ? AND id IN (SELECT value FROM json_each(?))"
    rows = select(connection, where, (caller, orjson.dumps([*names]).decode())) if names else []
    found = (Reader(connection).completion(row, full=False) for row in rows)
    return resolved(messages, {each.id: each.reply for each in found if each.reply})


def messages_up_to(
    connection: sqlite3.Connection, name: str, caller: str, session: str | None
) -> list[dict[str, Any]] | None:
    """Return the messages up to a response to a caller, and the response; None if the log has no such response.

    ``name``: its id, or that of an item of it.
    """
    before = _answer(connection, name, caller, session)
    return _history(before) if before else None


def _answer(connection: sqlite3.Connection, name: str, caller: str, session: str | None) -> Completion | None:
    if named := completion_named(name):
        rows = select(connection, "WHERE id = ? AND caller = ?", (named, caller))
    else:
        own = [each for each in by_response(connection, name) if each.caller == caller]
        rows = [row_of(connection, each.id) for each in preferred(own, session, caller)[:1]]
    return Reader(connection).completion(rows[0], full=True) if rows else None


def _history(before: Completion) -> list[dict[str, Any]]:
    """Return the messages of a completion, without instructions: those were for that request only."""
    messages = before.messages[1:] if _instructed(before.params) else before.messages
    return [*messages, before.reply] if before.reply else [*messages]


def _instructed(params: dict[str, Any]) -> bool:
    return params.get("instructions") is True
