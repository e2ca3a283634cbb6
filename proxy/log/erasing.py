"""Deletes completions from the log, with the messages that nothing else uses. Transactions belong to the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import orjson

USED_BY_COMPLETIONS = ("reply", "settings", "definitions", "choices", "instructions")
"""Columns that refer to a message or to parameters. (So does ``prompt``, which is on the path to ``node`` as well.)"""

UNUSED = " AND ".join(
    ["NOT EXISTS (SELECT 1 FROM node WHERE node.content = content.id)"]
    + [
        f"NOT EXISTS (SELECT 1 FROM completion WHERE completion.{column} = content.id)"  # noqa: S608
        for column in USED_BY_COMPLETIONS
    ]
)


def erase(connection: sqlite3.Connection, completion_ids: Iterable[str]) -> None:
    """Delete completions, the feedback on them, and all messages that nothing else uses."""
    ids = _json(list(completion_ids))
    among = "IN (SELECT value FROM json_each(?))"
    columns = ", ".join(("node", "prompt", *USED_BY_COMPLETIONS))
    rows = connection.execute(f"SELECT {columns} FROM completion WHERE id {among}", (ids,)).fetchall()  # noqa: S608
    erase_feedback(connection, f"completion_id {among}", ids)
    connection.execute(f"UPDATE feedback SET preferred_over = NULL WHERE preferred_over {among}", (ids,))  # noqa: S608
    connection.execute(f"DELETE FROM raw WHERE completion {among}", (ids,))  # noqa: S608
    connection.execute(f"DELETE FROM completion WHERE id {among}", (ids,))  # noqa: S608
    contents = {content for _, *used in rows for content in used if content is not None}
    for node in {row[0] for row in rows if row[0] is not None}:
        contents |= _prune_path(connection, node)
    connection.execute(
        f"DELETE FROM content WHERE id {among} AND {UNUSED}",  # noqa: S608
        (_json(sorted(contents)),),
    )


def erase_feedback(connection: sqlite3.Connection, where: str, *values: object) -> int:
    """Delete feedback, and return how much it was; ``where`` is one of our own literals, with its values bound."""
    connection.execute(f"DELETE FROM undo WHERE feedback IN (SELECT id FROM feedback WHERE {where})", values)  # noqa: S608
    return connection.execute(f"DELETE FROM feedback WHERE {where}", values).rowcount  # noqa: S608


def _prune_path(connection: sqlite3.Connection, node: int) -> set[int]:
    """Delete a node and those above it, up to one that is still used; returns the contents that they had."""
    contents: set[int] = set()
    while node:
        gone = connection.execute(
            """DELETE FROM node WHERE id = :node
            AND NOT EXISTS (SELECT 1 FROM node AS child WHERE child.parent = :node)
            AND NOT EXISTS (SELECT 1 FROM completion WHERE completion.node = :node)
            RETURNING parent, content""",
            {"node": node},
        ).fetchone()
        if gone is None:
            break
        node = gone[0]
        contents.add(gone[1])
    return contents


def _json(values: Sequence[object]) -> str:
    return orjson.dumps(values).decode()
