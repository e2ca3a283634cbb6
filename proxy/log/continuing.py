"""A request that goes on from a response whose conversation the upstream holds: what it stands on is in the log."""

from __future__ import annotations

import sqlite3
from typing import Any

import orjson

from burnish.proxy.log.attribution import by_response, preferred
from burnish.proxy.log.capture import Captured
from burnish.proxy.log.store import Reader, row_of
from burnish.proxy.log.tree import loaded, path, step
from burnish.proxy.records import Completion


def continued(connection: sqlite3.Connection, captured: Captured) -> Captured:
    """Return an exchange with its whole context, in the conversation that it goes on with.

    It stays as it was sent when the log knows no such response of the same caller's: ids of some servers are no more
    than small numbers, and words of others must not get into it.
    """
    assert captured.previous
    exchange = captured.exchange
    known = by_response(connection, captured.previous)
    own = [each for each in known if each.caller == exchange.caller]
    if not own:
        return captured
    nearest = preferred(own, exchange.session, exchange.caller)[0]
    before = Reader(connection).completion(row_of(connection, nearest.id), full=True)
    sent = [loaded(each.body) for each in captured.context]
    instructions = 1 if captured.settings and _instructed(orjson.loads(captured.settings)) else 0
    context = tuple(path([*sent[:instructions], *_held(before), *sent[instructions:]]))
    message = captured.answer.message
    return captured._replace(
        context=context,
        reply=step(message, context[-1] if context else None) if message else None,
        conversation_id=before.conversation_id,
    )


def _held(before: Completion) -> list[dict[str, Any]]:
    """Return what the upstream holds of a completion: all but instructions, which were for that request only."""
    messages = before.messages[1:] if _instructed(before.params) else before.messages
    return [*messages, before.reply] if before.reply else [*messages]


def _instructed(params: dict[str, Any]) -> bool:
    return params.get("instructions") is True
