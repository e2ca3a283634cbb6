"""Reading completions: functions on a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import orjson

from burnish.proxy.http.errors import NotFound
from burnish.proxy.log.faults import TEXT_SURFACES, fault_of
from burnish.proxy.log.tree import loaded, stored
from burnish.proxy.messages import text_of, words
from burnish.proxy.records import (
    Answerer,
    Choice,
    Completion,
    CompletionEnd,
    RejectedAnswer,
    RequestFacts,
    answer_named,
)

FACTS = (
    "id",
    "conversation_id",
    "continues",
    *RequestFacts._fields,
    *Answerer._fields,
    *CompletionEnd._fields,
)
"""Columns that are fields of a Completion, in the order of its parts."""
NODE = len(FACTS)
"""Place of the node in COLUMNS."""
COLUMNS = f"{', '.join(FACTS)}, node, settings, definitions, prompt, reply, choices, instructions"

IS_BEST = "(best_of IS NULL OR best_of = completion.id)"
"""Of several answers of which the best one was sent, only that one."""

Part = TypeVar("Part", RequestFacts, Answerer, CompletionEnd)


class Reader:
    """Builds Completion records; a message that several of them share is read and parsed once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._parsed: dict[int, dict[str, Any]] = {}

    def load(self, rows: Iterable[Sequence[Any]]) -> None:
        """Load the prompts and replies of rows of COLUMNS at once, for a listing."""
        contents = as_json(
            content for *_, prompt, reply, _, _ in rows for content in (prompt, reply) if content
        )
        bodies = self._connection.execute(
            "SELECT id, body FROM content WHERE id IN (SELECT value FROM json_each(?))", (contents,)
        )
        self._parsed.update({content: loaded(body) for content, body in bodies})

    def completion(self, row: Sequence[Any], rating: float | None = None, *, full: bool) -> Completion:
        """Build one record from COLUMNS; ``full`` loads its context and parameters too."""
        *facts, node, settings, definitions, prompt, reply, choices, instructions = row
        columns = iter(facts)
        name, conversation_id, continues = islice(columns, 3)
        request, model, ending = (
            _part(RequestFacts, columns),
            _part(Answerer, columns),
            _part(CompletionEnd, columns),
        )
        text = request.surface in TEXT_SURFACES
        params = self.params(settings, definitions) if full or text else {}
        return Completion(
            name,
            request._replace(sub_agent=bool(request.sub_agent)),
            model._replace(in_chat=bool(model.in_chat)),
            ending._replace(holds_credential=bool(ending.holds_credential)),
            instructions=orjson.loads(self._body(instructions)) if instructions else None,
            conversation_id=conversation_id,
            continues=continues,
            messages=tuple(self.path(node)) if full else (),
            params=params if full else {},
            prompt=self._asked(prompt) if prompt else "",
            reply=self._message(reply) if reply else None,
            choices=self._choices(choices) if ending.choice_count > 1 else (),
            rating=rating,
            fault=fault_of(
                ending.outcome,
                ending.status,
                ending.finish_reason,
                has_text=bool(reply and node),
                params=params if text else {},
            ),
        )

    def path(self, node: int | None) -> list[dict[str, Any]]:
        rows = self._connection.execute(
            """WITH RECURSIVE way (parent, content, height) AS (
                SELECT parent, content, 0 FROM node WHERE id = ?
                UNION ALL
                SELECT node.parent, node.content, height + 1 FROM node JOIN way ON node.id = way.parent
            ) SELECT content FROM way ORDER BY height DESC""",
            (node,),
        )
        return [self._message(content) for (content,) in rows]

    def exchange(
        self, node: int | None, reply: int, choices: int | None, index: int
    ) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
        """Return the messages before an answer, and the answer: one of several ``choices`` by its index."""
        own = (choice for choice in (self._choices(choices) if index and choices else ()))
        choice = next((choice for choice in own if choice.index == index), None)
        if choice is None:
            return self.path(node), self._message(reply)
        own_prompt = choice.prompt is not None
        context = [{"role": "user", "content": choice.prompt}] if own_prompt else self.path(node)
        return context, choice.reply

    def prompt_of(self, answer: str) -> Any:
        """Return the prompt of an answer by its name, as of ``Choice``."""
        completion_id, index = answer_named(answer)
        query = "SELECT choices FROM completion WHERE id = ? AND choices IS NOT NULL"
        row = self._connection.execute(query, (completion_id,)).fetchone() if index else None
        choices = self._choices(row[0]) if row else ()
        return next((choice.prompt for choice in choices if choice.index == index), None)

    def worse(self, node: int | None, better: str, answer: str | None) -> RejectedAnswer | None:
        """Return an answer by its name, if it is still there and answers the same as ``better``, at ``node``."""
        completion_id, choice = answer_named(answer or "")
        if answer and self.prompt_of(answer) != self.prompt_of(better):
            return None
        rows = self._connection.execute(
            "SELECT node, reply, choices, upstream_table FROM completion WHERE id = ? AND reply IS NOT NULL",
            (completion_id,),
        ).fetchall()
        for other_node, first, choices, table in rows:
            # The same messages may have been logged with their members in another order.
            if other_node != node and self.path(other_node) != self.path(node):
                continue
            if not choice:
                return RejectedAnswer(self._message(first), table)
            alternatives = self._choices(choices) if choices else ()
            return next(
                (
                    RejectedAnswer(alternative.reply, table)
                    for alternative in alternatives
                    if alternative.index == choice
                ),
                None,
            )
        return None

    def _asked(self, content: int) -> str:
        message = self._message(content)
        return words(message) or text_of(message)

    def params(self, *contents: int | None) -> dict[str, Any]:
        """Return parameters that were stored in several contents."""
        params: dict[str, Any] = {}
        for content in contents:
            params |= orjson.loads(self._body(content)) if content else {}
        return params

    def _choices(self, content: int) -> tuple[Choice, ...]:
        return tuple(
            Choice(
                choice["index"],
                choice["finish_reason"],
                loaded(orjson.dumps(stored(choice["message"]))),
                prompt=choice.get("prompt"),
            )
            for choice in orjson.loads(self._body(content))
        )

    def reason_of(self, content: int, index: int) -> str | None:
        """Return the finish reason of one of several choices."""
        choices = orjson.loads(self._body(content))
        return next((choice["finish_reason"] for choice in choices if choice["index"] == index), None)

    def _message(self, content: int) -> dict[str, Any]:
        message = self._parsed.get(content)
        if message is None:
            message = self._parsed[content] = loaded(self._body(content))
        return message

    def _body(self, content: int | None) -> bytes:
        (body,) = self._connection.execute("SELECT body FROM content WHERE id = ?", (content,)).fetchone()
        return bytes(body)


def as_json(values: Iterable[object]) -> str:
    """Return a JSON array, which one statement can bind however long it is."""
    return orjson.dumps(list(values)).decode()


def _part(kind: type[Part], values: Iterator[Any]) -> Part:
    return kind._make(islice(values, len(kind._fields)))


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


def recent_prompts(connection: sqlite3.Connection, limit: int, *, scrub: bool = True) -> list[Completion]:
    """Return the latest whole completion of each of the latest distinct contexts, rollouts left out.

    ``scrub``: without those that hold a key or a token.
    """
    reader = Reader(connection)
    where = """WHERE n IN (
        SELECT max(n) FROM completion
        WHERE outcome = 'complete' AND status < 400 AND reply IS NOT NULL AND node IS NOT NULL
            AND NOT (? AND holds_credential) AND rollout IS NULL
        GROUP BY node ORDER BY max(n) DESC LIMIT ?
    ) ORDER BY n DESC"""
    return [reader.completion(row, full=True) for row in select(connection, where, (scrub, limit))]
