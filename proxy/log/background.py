"""Answers of Responses that are made in the background: the request gets a number, and a later one the answer.

So the answer completes the row of the first request, as soon as a client of the same caller has fetched it.
"""

from __future__ import annotations

import sqlite3
import time

import orjson

from burnish.proxy.log import search
from burnish.proxy.log.attribution import by_response
from burnish.proxy.log.capture import ended
from burnish.proxy.log.intake import Intake
from burnish.proxy.log.retention import UNUSED
from burnish.proxy.log.store import Reader, as_json, row_of
from burnish.proxy.log.transfer import as_parsed
from burnish.proxy.log.tree import step
from burnish.proxy.records import Completion
from burnish.proxy.surfaces import SURFACES
from burnish.proxy.surfaces.base import ChatRequest


def complete(connection: sqlite3.Connection, response_id: str, caller: str, body: bytes) -> bool:
    """Complete the row of an unfinished response to a caller; return whether there was one.

    The row is written anew, so all that reads what is new in the log reads it again.
    """
    own = [match for match in by_response(connection, response_id) if match.caller == caller]
    if not own:
        return False
    reader = Reader(connection)
    completion = reader.completion(row_of(connection, own[0].id), full=True)
    if completion.asked.surface != "responses" or not _is_open(completion):
        return False
    answer = SURFACES["responses"].reassemble((body,), "", "")
    end = completion.ended._replace(
        outcome="complete", error=None, total_s=time.time() - completion.asked.created_at
    )
    end = ended(end, answer, ChatRequest([], params=completion.params), streamed=True)
    if answer.message == completion.reply and end.error == completion.ended.error:
        return False
    parsed = as_parsed(completion._replace(ended=end))
    context = parsed.context
    parsed = parsed._replace(
        reply=step(answer.message, context[-1] if context else None) if answer.message else None,
        usage=orjson.dumps(answer.usage) if answer.usage else None,
        choices=orjson.dumps(answer.choices) if answer.choices else None,
        items=answer.items,
    )
    _take_out(connection, completion.id)
    Intake(connection).add([parsed])
    return True


def _is_open(completion: Completion) -> bool:
    end = completion.ended
    return end.outcome != "complete" or (not end.error and end.finish_reason is None)


def _take_out(connection: sqlite3.Connection, completion_id: str) -> None:
    """Delete a row, but nothing that was said of it."""
    search.remove(connection, as_json([completion_id]))
    connection.execute("DELETE FROM response_item WHERE completion = ?", (completion_id,))
    contents = connection.execute(
        "DELETE FROM completion WHERE id = ? RETURNING reply, choices", (completion_id,)
    ).fetchone()
    for content in filter(None, contents):
        connection.execute(f"DELETE FROM content WHERE id = ? AND {UNUSED}", (content,))  # noqa: S608
