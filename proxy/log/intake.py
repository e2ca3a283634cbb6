"""Adding completions: a whole batch in a few statements. Transactions belong to the caller.

Python releases the interpreter lock around each statement, and a busy event loop may keep it for milliseconds. With
several statements for each completion, the writer would fall behind under load. So this module numbers the rows
itself and adds many at a time, which is why there may be one writer only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import orjson

from burnish.proxy.ids import conversation_id as new_conversation_id
from burnish.proxy.log import tokens
from burnish.proxy.log.attribution import continuation, continued
from burnish.proxy.log.capture import Continuation, Parsed
from burnish.proxy.log.store import FACTS, as_json
from burnish.proxy.log.tree import Digest, Recent, begins_turn, credential_in, digest, last_user_message
from burnish.proxy.records import Passthrough, RequestFacts
from burnish.system.apart import LARGE_BYTES

CACHE_SIZE = 8192
"""Messages, nodes and answers in each cache; clients resend a history soon."""

ROWS_A_STATEMENT = (64, 8, 1)
"""Few sizes, so that SQLite has each statement ready."""


COLUMNS = (
    *FACTS, "node", "settings", "definitions", "prompt", "reply", "choices", "instructions",
    "usage", "reply_key", "reply_identity", "begins_turn",
)  # fmt: skip
"""Columns of the table completion, in the order of the rows that ``_add`` makes."""


BODY = "body"
"""The column of texts, some of which are large."""
SIBLING = "SELECT conversation_id, continues FROM completion WHERE id = ?"


class Intake:
    """Adds completions to the tables; caches the IDs of messages that are likely to come again."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._contents = _Tree(connection, "content", f"digest, {BODY}")
        self._nodes = _Tree(connection, "node", "digest, parent, content")
        self._completions = _Rows(connection, "completion", ", ".join(COLUMNS), unless="(id)")
        raw = "completion, request, content_encoding, response"
        self._raw = _Rows(connection, "raw", raw, large=("request", "response"))
        self._tokens = _Rows(connection, "token_capture", tokens.COLUMNS, large=tokens.LARGE)
        self._items = _Rows(connection, "response_item", "id, completion", unless="(id, completion)")
        self._passthrough = _Rows(connection, "passthrough", ", ".join(Passthrough._fields), unless="(id)")
        self._answers: Recent[tuple[Continuation, RequestFacts]] = Recent(CACHE_SIZE)
        """By a reply that was stored lately: what a request that sends it continues."""

    def forget(self) -> None:
        """Clear the caches: their rows may not be in the database any more."""
        for table in (self._contents, self._nodes):
            table.forget()
        for rows in (self._completions, self._raw, self._tokens, self._items, self._passthrough):
            rows.waiting.clear()
        self._answers.clear()

    def add(self, batch: Sequence[Parsed | Passthrough], *, again: bool = False) -> None:
        """Store passthroughs, and completions with their new messages and nodes.

        ``again`` says that some may be stored already; they stay as they are.
        """
        self._passthrough.waiting += [entry for entry in batch if isinstance(entry, Passthrough)]
        self._passthrough.write()
        completions = [entry for entry in batch if isinstance(entry, Parsed)]
        if again:
            completions = self._not_stored(completions)
        begin = 0
        for index, parsed in enumerate(completions):
            if parsed.previous or parsed.has_references:  # which may be in this very batch
                self._add_all(completions[begin:index])
                self._add_all([continued(self._connection, parsed)])
                begin = index + 1
        self._add_all(completions[begin:])

    def _add_all(self, batch: Sequence[Parsed]) -> None:
        if not batch:
            return
        used = [_used(parsed) for parsed in batch]
        self._look_up(batch, used)
        for parsed, contents in zip(batch, used, strict=True):
            self._add(parsed, contents)
        self._flush()
        for table in (self._contents, self._nodes):
            table.ids = {}

    def _not_stored(self, batch: Sequence[Parsed]) -> list[Parsed]:
        ids = as_json(parsed.completion.id for parsed in batch)
        rows = self._connection.execute(
            "SELECT id FROM completion WHERE id IN (SELECT value FROM json_each(?))", (ids,)
        )
        names = {name for (name,) in rows}
        return [parsed for parsed in batch if parsed.completion.id not in names]

    def _look_up(self, batch: Sequence[Parsed], used: Sequence[_Used]) -> None:
        """Look up the IDs of all messages and nodes of a batch that may be stored and are not cached."""
        self._contents.begin()
        self._nodes.begin()
        contents: set[Digest] = set()
        nodes: set[Digest] = set()
        for parsed, used_contents in zip(batch, used, strict=True):
            for content in used_contents:
                if content and not self._contents.knows(content[0]):
                    contents.add(content[0])
            for step in reversed(parsed.context):
                if self._nodes.knows(step.node):
                    break
                nodes.add(step.node)
                if not self._contents.knows(step.content):
                    contents.add(step.content)
        self._contents.find(contents)
        self._nodes.find(nodes)

    def _add(self, parsed: Parsed, used: _Used) -> None:
        completion, reply = parsed.completion, parsed.reply
        ending = completion.ended
        if _holds_credential(parsed, used):
            ending = ending._replace(holds_credential=True)
        place = self._continuation(parsed)
        self._completions.waiting.append(
            (
                completion.id,
                *place,
                *completion.asked,
                *completion.served,
                *ending,
                self._node(parsed) or None,
                *[content and self._content(content) for content in used],
                parsed.usage.decode() if parsed.usage else None,
                reply.key if reply else None,
                reply.identity if reply and not reply.empty else None,
                begins_turn(parsed.context),
            )
        )
        if reply and completion.asked.best_of in (None, completion.id):
            next_place = Continuation(place.conversation_id, completion.id)
            self._answers.put(reply.key, (next_place, completion.asked))
        self._items.waiting += [(name, completion.id) for name in dict.fromkeys(parsed.items)]
        wire = completion.wire
        if wire.tokens:
            self._tokens.waiting.append(tokens.row(completion.id, wire.tokens))
        if parsed.raw:
            response = b"".join(wire.chunks)
            self._raw.waiting.append((completion.id, wire.request_body, wire.content_encoding, response))

    def _node(self, parsed: Parsed) -> int:
        """Return the node of a context, 0 for none; only what lies below the deepest known node is new."""
        context = parsed.context
        depth, node = len(context), 0
        while depth and not (node := self._nodes.ids.get(context[depth - 1].node, 0)):
            depth -= 1
        for step in context[depth:]:
            content = self._content((step.content, step.body))
            node = self._nodes.add(step.node, node, content)
        return node

    def _content(self, content: tuple[Digest, bytes]) -> int:
        contents, name = self._contents, content[0]
        return contents.ids[name] if name in contents.ids else contents.add(*content)

    def _continuation(self, parsed: Parsed) -> Continuation:
        """Return the conversation of a completion, which may be new, and the completion that it continues."""
        if parsed.continuation:
            return parsed.continuation
        request = parsed.completion.asked
        if request.best_of and request.best_of != parsed.completion.id:
            self._flush()
            if sibling := self._connection.execute(SIBLING, (request.best_of,)).fetchone():
                return Continuation(*sibling)
        last = next((step for step in reversed(parsed.context) if step.role == "assistant"), None)
        if last is not None or request.retry:
            answer = self._answers.get(last.key) if last else None
            # The database would name the latest answer to the same caller in the same session, too.
            if answer and answer[1].caller == request.caller and request.session in (None, answer[1].session):
                return answer[0]
            self._flush()
            if place := continuation(self._connection, parsed):
                return place
        return Continuation(new_conversation_id(parsed.completion.id), None)

    def _flush(self) -> None:
        tables = (
            self._contents.rows,
            self._nodes.rows,
            self._completions,
            self._raw,
            self._tokens,
            self._items,
        )
        for rows in tables:
            if rows.waiting:
                rows.write()


class _Rows:
    def __init__(
        self,
        connection: sqlite3.Connection,
        table: str,
        columns: str,
        *,
        unless: str = "",
        large: Collection[str] = (),
    ) -> None:
        """``unless``: columns; a row that equals a stored one in them is left out. ``large``: those of long values."""
        self._connection = connection
        self._table, self._columns = table, columns.split(", ")
        self._large = [self._columns.index(column) for column in large]
        marks = f"({', '.join('?' * len(self._columns))})"
        conflict = f" ON CONFLICT {unless} DO NOTHING" if unless else ""
        self._statements = [
            (size, f"INSERT INTO {table} ({columns}) VALUES {', '.join([marks] * size)}{conflict}")  # noqa: S608
            for size in ROWS_A_STATEMENT
        ]
        self.waiting: list[tuple[Any, ...]] = []

    def write(self) -> None:
        """Raises sqlite3.Error, and OverflowError or UnicodeError for a value that SQLite cannot hold."""
        rows, self.waiting = self.waiting, []
        large = {
            at
            for column in self._large
            for at, row in enumerate(rows)
            if len(row[column] or b"") > LARGE_BYTES
        }
        if large:
            for at in sorted(large):
                self._write_large(rows[at])
            rows = [row for at, row in enumerate(rows) if at not in large]
        start, count = 0, len(rows)
        for size, statement in self._statements:
            while count >= size:
                values = list(chain.from_iterable(rows[start : start + size]))
                self._connection.execute(statement, values)
                start += size
                count -= size

    def _write_large(self, row: tuple[Any, ...]) -> None:
        """Write a row's large values in place. SQLite would copy them, and a statement keeps what it was given last."""
        marks = ", ".join(f"zeroblob({len(cell)})" if _is_large(cell) else "?" for cell in row)
        cells = [cell for cell in row if not _is_large(cell)]
        cursor = self._connection.execute(
            f"INSERT INTO {self._table} ({', '.join(self._columns)}) VALUES ({marks})",  # noqa: S608
            cells,
        )
        for column, cell in zip(self._columns, row, strict=True):
            if _is_large(cell):
                with self._connection.blobopen(self._table, column, cursor.lastrowid or 0) as blob:
                    blob.write(cell)


def _is_large(cell: object) -> bool:
    return isinstance(cell, bytes) and len(cell) > LARGE_BYTES


class _Tree:
    """A table whose rows are named by a digest, with a cache of their IDs."""

    def __init__(self, connection: sqlite3.Connection, table: str, columns: str) -> None:
        self._connection = connection
        self.rows = _Rows(connection, table, f"id, {columns}", large=[BODY] if BODY in columns else [])
        self._recent: Recent[int] = Recent(CACHE_SIZE)
        self.ids: dict[Digest, int] = {}
        """IDs of the batch, of rows that are stored or going to be."""
        self._latest = 0
        self._find = [
            (size, f"SELECT digest, id FROM {table} WHERE digest IN ({', '.join('?' * size)})")  # noqa: S608
            for size in ROWS_A_STATEMENT
        ]
        self._last = f"SELECT coalesce(max(id), 0) FROM {table}"  # noqa: S608

    def forget(self) -> None:
        self.rows.waiting.clear()
        self.ids = {}
        self._recent.clear()

    def begin(self) -> None:
        self.ids = {}
        (self._latest,) = self._connection.execute(self._last).fetchone()

    def knows(self, name: Digest) -> bool:
        if name in self.ids:
            return True
        if (row := self._recent.get(name)) is None:
            return False
        self.ids[name] = row
        return True

    def find(self, names: Collection[Digest]) -> None:
        digests = iter(names)
        count = len(names)
        for size, statement in self._find:
            while count >= size:
                count -= size
                for name, row in self._connection.execute(statement, list(islice(digests, size))):
                    self.ids[name] = row
                    self._recent.put(name, row)

    def add(self, name: Digest, *values: object) -> int:
        self._latest += 1
        self.ids[name] = self._latest
        self._recent.put(name, self._latest)
        self.rows.waiting.append((self._latest, name, *values))
        return self._latest


_Content = tuple[Digest, bytes] | None
"""Digest and body of something that is stored once."""


class _Used(NamedTuple):
    settings: _Content
    definitions: _Content
    prompt: _Content
    reply: _Content
    choices: _Content
    instructions: _Content


def _used(parsed: Parsed) -> _Used:
    turn, reply, instructions = (
        last_user_message(parsed.context),
        parsed.reply,
        parsed.completion.instructions,
    )
    return _Used(
        _named(parsed.settings) if parsed.settings else None,
        _named(parsed.definitions) if parsed.definitions else None,
        (turn.content, turn.body) if turn else None,
        (reply.content, reply.body) if reply else None,
        _named(parsed.choices) if parsed.choices else None,
        None if instructions is None else _named(orjson.dumps(instructions)),
    )


def _holds_credential(parsed: Parsed, used: _Used) -> bool:
    last = parsed.reply or (parsed.context[-1] if parsed.context else None)
    if last and last.credential:  # of all messages up to it
        return True
    for content in (used.settings, used.definitions, used.choices, used.instructions):
        if content and credential_in(*content):
            return True
    return False


def _named(body: bytes) -> tuple[Digest, bytes]:
    return digest(body), body
