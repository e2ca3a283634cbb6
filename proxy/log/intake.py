"""Adding completions: a whole batch in a few statements. Transactions belong to the caller.

Few statements do not only cost less. Around each one Python lets go of the interpreter's lock, and a busy event
loop may keep it for milliseconds: with some statements for each completion, the writer would fall behind just
when much is said. So ids are given here, not by SQLite, and rows go in many at a time. That is why there may be
one writer only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import orjson

from burnish.proxy.ids import conversation_id as new_conversation_id
from burnish.proxy.log.attribution import Before, before
from burnish.proxy.log.capture import Captured
from burnish.proxy.log.continuing import continued
from burnish.proxy.log.recent import Recent
from burnish.proxy.log.tree import Digest, asked, begins_turn, digest
from burnish.proxy.records import Exchange, PassthroughFigures

KNOWN = 8192
"""Messages, nodes and answers that are remembered: what comes again comes soon."""

ROWS_A_STATEMENT = (64, 8, 1)
"""Few sizes, so that SQLite has each statement ready."""


class Row(NamedTuple):
    """A row of the table completion, as it is added."""

    id: str
    conversation_id: str
    response_id: str | None
    surface: str
    created_at: float
    outcome: str
    status: int | None
    error: str | None
    finish_reason: str | None
    model_asked: str
    model_served: str
    upstream: str
    adapter_version: int | None
    caller: str
    session: str | None
    retry: int
    usage: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    first_byte_s: float | None
    total_s: float
    base_digest: str | None
    node: int | None
    settings: int | None
    definitions: int | None
    prompt: int | None
    reply: int | None
    reply_key: Digest | None
    reply_identity: Digest | None
    choices: int | None
    instructions: int | None
    continues: str | None
    begins_turn: bool
    sub_agent: bool


PASSTHROUGH = (
    "id", "created_at", "method", "path", "model", "upstream", "status", "outcome", "error", "caller", "session",
    "request_bytes", "response_bytes", "prompt_tokens", "completion_tokens", "first_byte_s", "total_s",
)  # fmt: skip
"""Columns of the table passthrough."""


class _Answer(NamedTuple):
    """Where a reply that was stored lately belongs."""

    before: Before
    caller: str
    session: str | None


class Intake:
    """Adds completions to the tables, and remembers what is likely to come again."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._contents = _Tree(connection, "content", "digest, body")
        self._nodes = _Tree(connection, "node", "digest, parent, content")
        self._completions = _Rows(connection, "completion", ", ".join(Row._fields), unless="(id)")
        self._raw = _Rows(connection, "raw", "completion, request, content_encoding, response")
        self._passthrough = _Rows(connection, "passthrough", ", ".join(PASSTHROUGH), unless="(id)")
        self._answers: Recent[_Answer] = Recent(KNOWN)

    def forget(self) -> None:
        """Forget all that is remembered: it may not be in the database any more."""
        for table in (self._contents, self._nodes):
            table.forget()
        for rows in (self._completions, self._raw, self._passthrough):
            rows.waiting.clear()
        self._answers.clear()

    def add(self, batch: Sequence[Captured], *, again: bool = False) -> None:
        """Store exchanges: their new messages, their nodes, and the completions under them.

        ``again`` says that some may be stored already; they stay as they are.
        """
        if again:
            batch = self._not_stored(batch)
        begin = 0
        for index, captured in enumerate(batch):
            if captured.previous or captured.named:  # which may be in this very batch
                self._add_all(batch[begin:index])
                self._add_all([continued(self._connection, captured)])
                begin = index + 1
        self._add_all(batch[begin:])

    def _add_all(self, batch: Sequence[Captured]) -> None:
        if not batch:
            return
        used = [_used(captured) for captured in batch]
        self._look_up(batch, used)
        for captured, contents in zip(batch, used, strict=True):
            self._add(captured, contents)
        self._flush()

    def _not_stored(self, batch: Sequence[Captured]) -> list[Captured]:
        ids = orjson.dumps([captured.exchange.completion_id for captured in batch]).decode()
        stored = self._connection.execute(
            "SELECT id FROM completion WHERE id IN (SELECT value FROM json_each(?))", (ids,)
        )
        known = {name for (name,) in stored}
        return [captured for captured in batch if captured.exchange.completion_id not in known]

    def _look_up(self, batch: Sequence[Captured], used: Sequence[_Used]) -> None:
        """Ask for the ids of everything in a batch that may be stored and is not remembered."""
        self._contents.begin()
        self._nodes.begin()
        contents: set[Digest] = set()
        nodes: set[Digest] = set()
        for captured, used_contents in zip(batch, used, strict=True):
            contents.update(name for name, _ in filter(None, used_contents) if not self._contents.knows(name))
            for step in reversed(captured.context):
                if self._nodes.knows(step.node):
                    break
                nodes.add(step.node)
                if not self._contents.knows(step.content):
                    contents.add(step.content)
        self._contents.find(contents)
        self._nodes.find(nodes)

    def _add(self, captured: Captured, used: _Used) -> None:
        exchange, answer, reply = captured.exchange, captured.answer, captured.reply
        if exchange.passthrough is not None:
            self._passthrough.waiting.append(_passthrough(exchange, exchange.passthrough))
            return
        node = self._node(captured)
        conversation, continues = self._before(captured)
        row = Row(
            id=exchange.completion_id,
            conversation_id=conversation,
            response_id=answer.response_id,
            surface=exchange.surface,
            created_at=exchange.started_at,
            outcome=captured.outcome,
            status=exchange.status,
            error=captured.error,
            finish_reason=answer.finish_reason,
            model_asked=exchange.model_asked,
            model_served=exchange.model_served,
            upstream=exchange.upstream,
            adapter_version=exchange.adapter_version,
            caller=exchange.caller,
            session=exchange.session,
            retry=exchange.retry,
            usage=orjson.dumps(answer.usage).decode() if answer.usage else None,
            prompt_tokens=tokens(answer.usage, "prompt_tokens"),
            completion_tokens=tokens(answer.usage, "completion_tokens"),
            first_byte_s=exchange.first_byte_s,
            total_s=exchange.total_s,
            base_digest=exchange.base_digest,
            node=node or None,
            settings=self._content(used.settings),
            definitions=self._content(used.definitions),
            prompt=self._content(used.prompt),
            reply=self._content(used.reply),
            reply_key=reply.key if reply else None,
            reply_identity=reply.identity if reply and not reply.empty else None,
            choices=self._content(used.choices),
            instructions=self._content(used.instructions),
            continues=continues,
            begins_turn=begins_turn(captured.context),
            sub_agent=exchange.sub_agent,
        )
        self._completions.waiting.append(row)
        if reply:
            here = Before(conversation, exchange.completion_id)
            self._answers.put(reply.key, _Answer(here, exchange.caller, exchange.session))
        if captured.raw:
            response = b"".join(exchange.chunks)
            self._raw.waiting.append(
                (exchange.completion_id, exchange.request_body, exchange.content_encoding, response)
            )

    def _node(self, captured: Captured) -> int:
        """Return the node of a context, 0 for none; only what lies below the deepest known node is new."""
        context = captured.context
        depth, node = len(context), 0
        while depth and not (node := self._nodes.ids.get(context[depth - 1].node, 0)):
            depth -= 1
        for step in context[depth:]:
            content = self._content((step.content, step.body))
            node = self._nodes.add(step.node, node, content)
        return node

    def _content(self, used: tuple[Digest, bytes] | None) -> int | None:
        if used is None:
            return None
        name, body = used
        return self._contents.ids.get(name) or self._contents.add(name, body)

    def _before(self, captured: Captured) -> Before:
        """Return what a request goes on from: a conversation, which may be new, and the answer before it."""
        if captured.conversation_id:
            return Before(captured.conversation_id, captured.continues)
        exchange = captured.exchange
        last = next((step for step in reversed(captured.context) if step.role == "assistant"), None)
        if last is not None or exchange.retry:
            known = self._answers.get(last.key) if last else None
            # The latest answer to the same caller in the same session is the one that the database would name, too.
            if known and known.caller == exchange.caller and exchange.session in (None, known.session):
                return known.before
            self._flush()
            if found := before(self._connection, captured):
                return found
        return Before(new_conversation_id(exchange.completion_id), None)

    def _flush(self) -> None:
        for rows in (self._contents.rows, self._nodes.rows, self._completions, self._raw, self._passthrough):
            rows.write()


class _Rows:
    """Rows of one table on their way."""

    def __init__(self, connection: sqlite3.Connection, table: str, columns: str, unless: str = "") -> None:
        """``unless`` names columns: a row that equals one in them is left out."""
        self._connection = connection
        marks = f"({', '.join('?' * len(columns.split(',')))})"
        conflict = f" ON CONFLICT {unless} DO NOTHING" if unless else ""
        self._statements = [
            (size, f"INSERT INTO {table} ({columns}) VALUES {', '.join([marks] * size)}{conflict}")  # noqa: S608
            for size in ROWS_A_STATEMENT
        ]
        self.waiting: list[tuple[Any, ...]] = []

    def write(self) -> None:
        """Write them. Raises sqlite3.Error, and what a value raises that SQLite cannot hold."""
        start = 0
        for size, statement in self._statements:
            while len(self.waiting) - start >= size:
                values = list(chain.from_iterable(self.waiting[start : start + size]))
                self._connection.execute(statement, values)
                start += size
        self.waiting.clear()


class _Tree:
    """A table whose rows are named by a digest, with the ids of a batch and of what was lately asked for."""

    def __init__(self, connection: sqlite3.Connection, table: str, columns: str) -> None:
        self._connection = connection
        self.rows = _Rows(connection, table, f"id, {columns}")
        self._recent: Recent[int] = Recent(KNOWN)
        self.ids: dict[Digest, int] = {}
        """Of the batch: all that is stored, or is going to be."""
        self._latest = 0
        self._find = [
            (size, f"SELECT digest, id FROM {table} WHERE digest IN ({', '.join('?' * size)})")  # noqa: S608
            for size in ROWS_A_STATEMENT
        ]
        self._last = f"SELECT coalesce(max(id), 0) FROM {table}"  # noqa: S608

    def forget(self) -> None:
        """Forget all."""
        self.rows.waiting.clear()
        self.ids = {}
        self._recent.clear()

    def begin(self) -> None:
        """Begin a batch, inside its transaction."""
        self.ids = {}
        (self._latest,) = self._connection.execute(self._last).fetchone()

    def knows(self, name: Digest) -> bool:
        """Whether the id of a digest is known without asking."""
        if name in self.ids:
            return True
        if (found := self._recent.get(name)) is None:
            return False
        self.ids[name] = found
        return True

    def find(self, names: Collection[Digest]) -> None:
        """Ask which digests are stored."""
        left = iter(names)
        count = len(names)
        for size, statement in self._find:
            while count >= size:
                count -= size
                for name, row in self._connection.execute(statement, list(islice(left, size))):
                    self.ids[name] = row
                    self._recent.put(name, row)

    def add(self, name: Digest, *values: object) -> int:
        """Add a row and return its id."""
        self._latest += 1
        self.ids[name] = self._latest
        self._recent.put(name, self._latest)
        self.rows.waiting.append((self._latest, name, *values))
        return self._latest


class _Used(NamedTuple):
    """What a completion refers to beside its path: digests and bodies."""

    prompt: tuple[Digest, bytes] | None
    reply: tuple[Digest, bytes] | None
    settings: tuple[Digest, bytes] | None
    definitions: tuple[Digest, bytes] | None
    choices: tuple[Digest, bytes] | None
    instructions: tuple[Digest, bytes] | None


def _used(captured: Captured) -> _Used:
    turn = asked(captured.context)
    reply, instructions = captured.reply, captured.exchange.instructions
    return _Used(
        prompt=(turn.content, turn.body) if turn else None,
        reply=(reply.content, reply.body) if reply else None,
        settings=_named(captured.settings),
        definitions=_named(captured.definitions),
        choices=_named(captured.choices),
        instructions=_named(None if instructions is None else orjson.dumps(instructions)),
    )


def _passthrough(exchange: Exchange, passthrough: PassthroughFigures) -> tuple[Any, ...]:
    """Return the row of what was merely passed through."""
    said = {
        **exchange._asdict(), **passthrough,
        "id": exchange.completion_id, "created_at": exchange.started_at, "model": exchange.model_asked or None,
    }  # fmt: skip
    return tuple(said[name] for name in PASSTHROUGH)


def _named(body: bytes | None) -> tuple[Digest, bytes] | None:
    return None if body is None else (digest(body), body)


def tokens(usage: dict[str, Any] | None, name: str) -> int | None:
    """Return a count of tokens, None where an upstream says none that can be one."""
    count = usage.get(name) if usage else None
    return count if isinstance(count, int) and 0 <= count < 2**63 else None
