"""Token ids and log-probabilities of completions, packed: functions on a connection.

A column holds the bytes of all numbers, first the lowest byte of each, then the next one, compressed. The high bytes of
ids are nearly all zero.
"""

from __future__ import annotations

import sqlite3
import sys
import zlib
from array import array
from collections.abc import Collection, Sequence
from typing import Any

from burnish.proxy.log.store import as_json
from burnish.proxy.records import Tokens

COLUMNS = "completion, prompt, reply, logprobs, missing"
LARGE = ("prompt", "reply", "logprobs")
"""Columns whose values may be large."""
ID, LOGPROB = "I", "f"
"""Unsigned integers and IEEE floats, of four bytes each."""
WIDTH = 4
LEVEL = 6
"""Of zlib; 9 is twice as slow, and saves one percent."""

Row = tuple[str, bytes | None, bytes | None, bytes | None, str | None]


def row(completion_id: str, tokens: Tokens) -> Row:
    """Return a row of COLUMNS. What an engine said may be no id; that must not keep the completion out."""
    if tokens.missing is not None:
        return completion_id, None, None, None, tokens.missing
    try:
        ids = _packed(ID, tokens.prompt), _packed(ID, tokens.reply)
        return completion_id, *ids, _packed(LOGPROB, tokens.logprobs), None
    except (OverflowError, TypeError) as error:
        return completion_id, None, None, None, f"the engine told an id that can't be one: {error}"


def tokens(connection: sqlite3.Connection, completion_ids: Collection[str]) -> dict[str, Tokens]:
    """Return the tokens, or why they are missing, of those completions that were to be captured."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM token_capture WHERE completion IN (SELECT value FROM json_each(?))",  # noqa: S608
        (as_json(completion_ids),),
    )
    return {
        name: Tokens(_ids(prompt), _ids(reply), tuple(_unpacked(LOGPROB, logprobs)), missing)
        for name, prompt, reply, logprobs, missing in rows
    }


def kept(connection: sqlite3.Connection, completion_ids: Collection[str]) -> tuple[int, dict[str, int]]:
    """Return how many completions have their tokens, and how many lack them, by reason."""
    rows = connection.execute(
        """SELECT missing, count(*) FROM token_capture WHERE completion IN (SELECT value FROM json_each(?))
        GROUP BY missing""",
        (as_json(completion_ids),),
    ).fetchall()
    counts: dict[str | None, int] = dict(rows)
    whole = counts.pop(None, 0)
    return whole, {why: count for why, count in counts.items() if why is not None}


def _ids(packed: bytes | None) -> tuple[int, ...]:
    return tuple(_unpacked(ID, packed))


def _packed(kind: str, numbers: Sequence[float]) -> bytes:
    values = array(kind, numbers)
    if sys.byteorder == "big":
        values.byteswap()
    plain = values.tobytes()
    return zlib.compress(b"".join(plain[place::WIDTH] for place in range(WIDTH)), LEVEL)


def _unpacked(kind: str, packed: bytes | None) -> array[Any]:
    planes = zlib.decompress(packed) if packed else b""
    count = len(planes) // WIDTH
    plain = bytearray(len(planes))
    for place in range(WIDTH):
        plain[place::WIDTH] = planes[place * count : (place + 1) * count]
    values: array[Any] = array(kind)
    values.frombytes(bytes(plain))
    if sys.byteorder == "big":
        values.byteswap()
    return values
