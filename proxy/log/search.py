"""Full-text search in what people wrote and what was answered.

The index lags behind the log, because a row costs a tenth when it is added with many others. The table ``search_end``
holds the number of the last completion in the index; a search looks through the texts behind it itself.

The index holds words only, no texts: a row is deleted by giving SQLite the same words again. So ``searched`` may only
change together with a migration that builds the index anew.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing

from burnish.proxy.log.files import locked
from burnish.proxy.log.tree import loaded
from burnish.proxy.messages import text_of, words

logger = logging.getLogger(__name__)

CHARACTERS = 20_000
"""Of a prompt, and of a reply, that are searched."""
PREFIX = 3
"""The last word of a search may be the beginning of one if it has so many characters. Most texts have shorter ones."""
BATCH, LAST_BATCH = 200, 20_000
"""Matches that are looked at together: few at first, more if other filters leave out most of them."""
RARE = 2000
"""Matches of a search that are few beside the rows of most other filters."""
MERGE_PAGES = 200
"""Of the index, rewritten in one step: some milliseconds."""

STEP_ROWS = 512
"""Completions that are added together: some 20 milliseconds."""
STEP_EVERY_S = 5.0
"""Fewer completions wait no longer than this; more of them wait until the writer has nothing else to do."""
MOST_BEHIND = 4096
"""When so many completions wait, it is time for a step under any load: a search looks through all of them."""
END = 2**63 - 1
"""Above the number of any completion, and any count of them."""

UNINDEXED = "n > (SELECT n FROM search_end)"
"""Whether the index lacks a completion."""
CREATE = """CREATE VIRTUAL TABLE search USING fts5(
    words, content = '', detail = none, columnsize = 0, tokenize = 'unicode61 remove_diacritics 2'
)"""
"""Without the places of words in a text, which would take twice the room."""
WORD = re.compile(r"[^\W_]+")
"""What the index takes for a word."""


def searched(prompt: bytes | None, reply: bytes | None) -> str:
    """Return the words of a completion that are searched, from its messages as they are stored."""
    message = loaded(prompt) if prompt else {}
    parts = (words(message) or text_of(message), text_of(loaded(reply)) if reply else "")
    # SQLite's texts end at a NUL.
    return "\n".join(part[:CHARACTERS] for part in parts).replace("\0", " ").strip()


def remove(connection: sqlite3.Connection, completion_ids: str) -> None:
    """Take completions (a JSON array) out of the index, before they are deleted."""
    among = "completion.id IN (SELECT value FROM json_each(?))"
    rows = _texts(connection, f"{among} AND NOT {UNINDEXED}", completion_ids)
    connection.executemany(
        "INSERT INTO search (search, rowid, words) VALUES ('delete', ?, ?)", [row for row in rows if row[1]]
    )
    # When the last rows are deleted, the next ones get their numbers.
    connection.execute(
        f"""UPDATE search_end SET n = min(n, coalesce(
            (SELECT n FROM completion WHERE NOT {among} ORDER BY n DESC LIMIT 1), 0))""",  # noqa: S608
        (completion_ids,),
    )


def add(connection: sqlite3.Connection) -> bool:
    """Add the next completions to the index, in a transaction of its own; return whether more wait."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        rows = _texts(connection, f"{UNINDEXED} ORDER BY n LIMIT ?", STEP_ROWS)
        if rows:
            texts = [row for row in rows if row[1]]
            connection.executemany("INSERT INTO search (rowid, words) VALUES (?, ?)", texts)
            connection.execute("UPDATE search_end SET n = ?", (rows[-1][0],))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return len(rows) == STEP_ROWS


def _texts(connection: sqlite3.Connection, where: str, *values: object) -> list[tuple[int, str]]:
    """Return numbers and words of completions; ``where`` is one of our own literals, with its values bound."""
    rows = connection.execute(
        f"""SELECT n, asked.body, answered.body FROM completion
        LEFT JOIN content AS asked ON asked.id = prompt LEFT JOIN content AS answered ON answered.id = reply
        WHERE {where}""",  # noqa: S608
        values,
    )
    return [(n, _searched(prompt, reply)) for n, prompt, reply in rows]


class Lag:
    """Decides when the index is brought up to date. Used by the writer thread only."""

    def __init__(self) -> None:
        self.more = True
        """Whether the next step comes at once."""
        self._written = 0
        """Entries and calls since the last step, which may be that many completions."""
        self._at = 0.0
        self._trouble = ""

    def is_due(self, count: int, *, idle: bool) -> bool:
        """Note that so many entries and calls were written; return whether it is time for a step.

        ``idle``: the writer found nothing to write.
        """
        self._written += count
        if self.more or self._written >= MOST_BEHIND:
            return True
        if not self._written or idle:
            return self._written > 0
        return self._written < STEP_ROWS and time.monotonic() >= self._at + STEP_EVERY_S

    def step(self, connection: sqlite3.Connection) -> None:
        self._written, self._at = 0, time.monotonic()
        try:
            self.more = add(connection)
        except Exception as error:  # noqa: BLE001 – the log must go on; searches take longer
            self.more, self._written = False, 1
            if not locked(error) and str(error) != self._trouble:
                self._trouble = str(error)
                logger.error("the index of the search can't be written: %s. burnish tries again", error)


def purge(connection: sqlite3.Connection, *, begin: bool) -> bool:
    """Do a step of rewriting the index without what was taken out; return whether there is more to do.

    Until then the file holds the words of deleted texts. ``begin``: the first step.
    """
    changes = connection.total_changes
    pages = -MERGE_PAGES if begin else MERGE_PAGES
    connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (pages,))
    # The command itself counts as one change.
    return connection.total_changes - changes > 1


class Search:
    def __init__(self, connection: sqlite3.Connection, query: str) -> None:
        self._connection = connection
        self._expression = _expression(query)
        self._behind = self._found_behind()

    def matches(self, before_id: str | None) -> Iterator[list[int]]:
        """Yield the numbers of completions with all the words, latest first, some at a time."""
        end, size = self._end(before_id), BATCH
        while end:
            yield (numbers := self._numbers(0, end, size))
            end = numbers[-1] if len(numbers) == size else 0
            size = min(2 * size, LAST_BATCH)

    def is_rare(self, before_id: str | None) -> bool:
        """Whether it is quicker to look at all that it finds than at what other filters find."""
        return len(self._numbers(0, self._end(before_id), RARE)) < RARE

    def among(self, numbers: Collection[int]) -> list[int]:
        """Return those of the completions that have all the words."""
        if not numbers:
            return []
        matches = self._numbers(min(numbers), max(numbers) + 1, END)
        return [*set(numbers).intersection(matches)]

    def _end(self, before_id: str | None) -> int:
        """Return the number above those of the completions before an ID; 0 if there are none."""
        if before_id is None:
            return END
        latest = "SELECT n FROM completion WHERE id < ? ORDER BY id DESC LIMIT 1"
        row = self._connection.execute(latest, (before_id,)).fetchone()
        return row[0] + 1 if row else 0

    def _numbers(self, begin: int, end: int, most: int) -> list[int]:
        """Return the latest numbers of a range; those that the index lacks are the latest of all."""
        unindexed = [number for number in self._behind if begin <= number < end][:most]
        return unindexed + self._found_in(self._connection, begin, end, most - len(unindexed))

    def _found_behind(self) -> list[int]:
        rows = _texts(self._connection, UNINDEXED) if self._expression else []
        with closing(sqlite3.connect(":memory:")) as index:  # takes the same for words
            index.execute(CREATE)
            index.executemany("INSERT INTO search (rowid, words) VALUES (?, ?)", rows)
            return self._found_in(index, 0, END, END)

    def _found_in(self, index: sqlite3.Connection, begin: int, end: int, most: int) -> list[int]:
        if not self._expression:
            return []
        rows = index.execute(
            """SELECT rowid FROM search WHERE search MATCH ? AND rowid >= ? AND rowid < ?
            ORDER BY rowid DESC LIMIT ?""",
            (self._expression, begin, end, most),
        )
        return [number for (number,) in rows]


def _expression(query: str) -> str:
    """Return a query of FTS5 for all words, in any order; the last may be the beginning of one. "": no words."""
    terms = WORD.findall(query)
    unfinished = terms and query.endswith(terms[-1]) and len(terms[-1]) >= PREFIX
    return " ".join(f'"{word}"' for word in terms) + ("*" if unfinished else "")


def _searched(prompt: bytes | None, reply: bytes | None) -> str:
    try:
        return searched(prompt, reply)
    except ValueError:
        return ""  # a damaged text; `burnish doctor --deep` reports it
