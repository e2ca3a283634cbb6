"""Completions in SQLite: functions on a connection. Transactions belong to the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import orjson

from burnish.proxy.errors import NotFound
from burnish.proxy.ids import conversation_id as new_conversation_id
from burnish.proxy.log.attribution import conversation_of
from burnish.proxy.log.capture import Captured
from burnish.proxy.log.tree import Digest, Step, digest, loaded, text_of
from burnish.proxy.records import Completion

LOADED = ("messages", "params", "prompt", "reply", "rating", "instant")
PLAIN = tuple(field.name for field in fields(Completion) if field.name not in LOADED)
"""Fields of a Completion that are columns."""

COLUMNS = f"{', '.join(PLAIN)}, node, settings, definitions, prompt, reply, instant"


def add_completion(connection: sqlite3.Connection, captured: Captured) -> None:
    """Store one exchange: its new messages, its node, and the completion under it."""
    reply = captured.reply
    turn = next((step for step in reversed(captured.context) if step.role == "user"), None)
    row = _facts(captured) | {
        "conversation_id": conversation_of(connection, captured) or new_conversation_id(),
        "node": _add_path(connection, captured.context),
        "settings": _add_content(connection, captured.settings),
        "definitions": _add_content(connection, captured.definitions),
        "prompt": _add_content(connection, turn.body) if turn else None,
        "turn_key": turn.key if turn else None,
        "reply": _add_content(connection, reply.body) if reply else None,
        "reply_key": reply.key if reply else None,
        "reply_identity": reply.identity if reply and not reply.empty else None,
        "choices": _add_content(connection, captured.choices),
        "instant": _add_content(connection, _text(captured.exchange.instant)),
    }
    # The names are the literals above and below; values are bound.
    statement = f"INSERT INTO completion ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608
    connection.execute(statement, tuple(row.values()))
    if captured.raw:
        exchange = captured.exchange
        response = b"".join(exchange.chunks)
        values = (exchange.completion_id, exchange.request_body, exchange.content_encoding, response)
        connection.execute("INSERT INTO raw VALUES (?, ?, ?, ?)", values)


def _text(text: str | None) -> bytes | None:
    return None if text is None else orjson.dumps(text)


def _facts(captured: Captured) -> dict[str, Any]:
    exchange, answer = captured.exchange, captured.answer
    return {
        "id": exchange.completion_id,
        "response_id": answer.response_id,
        "surface": exchange.surface,
        "created_at": exchange.started_at,
        "outcome": captured.outcome,
        "status": exchange.status,
        "error": captured.error,
        "finish_reason": answer.finish_reason,
        "model_asked": exchange.model_asked,
        "model_served": exchange.model_served,
        "upstream": exchange.upstream,
        "adapter_version": exchange.adapter_version,
        "caller": exchange.caller,
        "session": exchange.session,
        "retry": exchange.retry,
        "usage": orjson.dumps(answer.usage).decode() if answer.usage else None,
        "prompt_tokens": tokens(answer.usage, "prompt_tokens"),
        "completion_tokens": tokens(answer.usage, "completion_tokens"),
        "first_byte_s": exchange.first_byte_s,
        "total_s": exchange.total_s,
        "base_digest": exchange.base_digest,
    }


def tokens(usage: dict[str, Any] | None, name: str) -> int | None:
    """Return a count of tokens, None where an upstream says none that can be one."""
    count = usage.get(name) if usage else None
    return count if isinstance(count, int) and 0 <= count < 2**63 else None


def _add_content(
    connection: sqlite3.Connection, body: bytes | None, name: Digest | None = None
) -> int | None:
    if body is None:
        return None
    name = name or digest(body)
    row = connection.execute("SELECT id FROM content WHERE digest = ?", (name,)).fetchone()
    if row is None:
        row = (
            connection.execute("INSERT INTO content (digest, body) VALUES (?, ?)", (name, body)).lastrowid,
        )
    return int(row[0])


def _add_path(connection: sqlite3.Connection, context: Sequence[Step]) -> int | None:
    """Return the node of a context; only what lies below the deepest known node is new."""
    known, node = 0, 0
    for depth in range(len(context), 0, -1):
        row = connection.execute(
            "SELECT id FROM node WHERE digest = ?", (context[depth - 1].node,)
        ).fetchone()
        if row:
            known, node = depth, int(row[0])
            break
    for step in context[known:]:
        content = _add_content(connection, step.body, step.content)
        added = connection.execute(
            "INSERT INTO node (digest, parent, content) VALUES (?, ?, ?)", (step.node, node, content)
        )
        node = int(added.lastrowid or 0)
    return node or None


class Reader:
    """Builds Completion records; a message that several of them share is read and parsed once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._parsed: dict[int, dict[str, Any]] = {}

    def completion(self, row: Sequence[Any], rating: float | None = None, *, full: bool) -> Completion:
        """Build one record from COLUMNS; ``full`` loads its context and parameters too."""
        *plain, node, settings, definitions, prompt, reply, instant = row
        return Completion(
            **dict(zip(PLAIN, plain, strict=True)),
            messages=tuple(self._message(content) for content in self._path(node)) if full else (),
            params=self._params(settings) | self._params(definitions) if full else {},
            prompt=text_of(self._message(prompt)) if prompt else "",
            reply=self._message(reply) if reply else None,
            rating=rating,
            instant=orjson.loads(self._body(instant)) if instant else None,
        )

    def _path(self, node: int | None) -> list[int]:
        """Return the contents on the way from the root to a node."""
        rows = self._connection.execute(
            """WITH RECURSIVE way (parent, content, height) AS (
                SELECT parent, content, 0 FROM node WHERE id = ?
                UNION ALL
                SELECT node.parent, node.content, height + 1 FROM node JOIN way ON node.id = way.parent
            ) SELECT content FROM way ORDER BY height DESC""",
            (node,),
        )
        return [content for (content,) in rows]

    def _params(self, content: int | None) -> dict[str, Any]:
        return orjson.loads(self._body(content)) if content else {}

    def _message(self, content: int) -> dict[str, Any]:
        message = self._parsed.get(content)
        if message is None:
            message = self._parsed[content] = loaded(self._body(content))
        return message

    def _body(self, content: int | None) -> bytes:
        (body,) = self._connection.execute("SELECT body FROM content WHERE id = ?", (content,)).fetchone()
        return bytes(body)


def select(connection: sqlite3.Connection, where: str, values: Iterable[Any]) -> list[Any]:
    """Return rows of COLUMNS; ``where`` is one of our own literals, with its values bound."""
    statement = f"SELECT {COLUMNS} FROM completion {where}"  # noqa: S608
    return connection.execute(statement, tuple(values)).fetchall()


def row_of(connection: sqlite3.Connection, completion_id: str) -> Any:
    """Return a completion's row of COLUMNS. Raises NotFound."""
    rows = select(connection, "WHERE id = ?", (completion_id,))
    if not rows:
        raise NotFound(f"there is no completion {completion_id!r} in the log", param="completion_id")
    return rows[0]


def recent_prompts(connection: sqlite3.Connection, limit: int) -> list[Completion]:
    """Return the latest whole completion of each of the latest distinct contexts."""
    reader = Reader(connection)
    where = """WHERE n IN (
        SELECT max(n) FROM completion
        WHERE outcome = 'complete' AND status < 400 AND reply IS NOT NULL AND node IS NOT NULL
        GROUP BY node ORDER BY max(n) DESC LIMIT ?
    ) ORDER BY n DESC"""
    return [reader.completion(row, full=True) for row in select(connection, where, (limit,))]
