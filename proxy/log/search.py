"""Full-text search in what people wrote and what was answered.

The index holds words only, no texts: a row is deleted by giving SQLite the same words again. So ``searched`` may only
change together with a migration that builds the index anew.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator

from burnish.proxy.log.tree import loaded
from burnish.proxy.messages import text_of
from burnish.proxy.people import words

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

CREATE = """CREATE VIRTUAL TABLE search USING fts5(
    words, content = '', detail = none, columnsize = 0, tokenize = 'unicode61 remove_diacritics 2'
)"""
"""Without the places of words in a text, which would take twice the room."""
WORD = re.compile(r"[^\W_]+")
"""What the index takes for a word."""
FILL = """INSERT INTO search (rowid, words) SELECT n, searched(asked.body, answered.body) AS words FROM completion
    LEFT JOIN content AS asked ON asked.id = prompt LEFT JOIN content AS answered ON answered.id = reply
    WHERE words != ''"""
"""What was logged before there was an index."""
ADD = """INSERT INTO search (rowid, words) SELECT n, value ->> 1 FROM json_each(?)
    JOIN completion ON completion.id = value ->> 0"""
"""Takes pairs of ID and words."""


def searched(prompt: bytes | None, reply: bytes | None) -> str:
    """Return the words of a completion that are searched, from its messages as they are stored."""
    asked = loaded(prompt) if prompt else {}
    parts = (words(asked) or text_of(asked), text_of(loaded(reply)) if reply else "")
    # SQLite's texts end at a NUL.
    return "\n".join(part[:CHARACTERS] for part in parts).replace("\0", " ").strip()


def remove(connection: sqlite3.Connection, completion_ids: str) -> None:
    """Take completions (a JSON array) out of the index, before they are deleted."""
    rows = connection.execute(
        """SELECT n, searched(asked.body, answered.body) FROM completion
        LEFT JOIN content AS asked ON asked.id = prompt LEFT JOIN content AS answered ON answered.id = reply
        WHERE completion.id IN (SELECT value FROM json_each(?))""",
        (completion_ids,),
    ).fetchall()
    connection.executemany(
        "INSERT INTO search (search, rowid, words) VALUES ('delete', ?, ?)",
        ((n, text) for n, text in rows if text),
    )


def purge(connection: sqlite3.Connection, *, begin: bool) -> bool:
    """Do a step of rewriting the index without what was taken out; return whether there is more to do.

    Until then the file holds the words of deleted texts. ``begin``: the first step.
    """
    before = connection.total_changes
    pages = -MERGE_PAGES if begin else MERGE_PAGES
    connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (pages,))
    # The command itself counts as one change.
    return connection.total_changes - before > 1


class Search:
    """One search, in pages."""

    def __init__(self, connection: sqlite3.Connection, given: str) -> None:
        self._connection = connection
        self._expression = _expression(given)

    def matches(self, before: str | None) -> Iterator[list[int]]:
        """Yield the numbers of completions with all the words, latest first, some at a time."""
        end, size = self._end(before), BATCH
        while end:
            yield (numbers := self._numbers(0, end, size))
            end = numbers[-1] if len(numbers) == size else 0
            size = min(2 * size, LAST_BATCH)

    def is_rare(self, before: str | None) -> bool:
        """Whether it is quicker to look at all that it finds than at what other filters find."""
        return len(self._numbers(0, self._end(before), RARE)) < RARE

    def among(self, numbers: Collection[int]) -> list[int]:
        """Return those of the completions that have all the words."""
        if not numbers:
            return []
        found = self._numbers(min(numbers), max(numbers) + 1, -1)
        return [*set(numbers).intersection(found)]

    def _end(self, before: str | None) -> int:
        """Return the number above those of the completions before an ID; 0 if there are none."""
        if before is None:
            return 2**63 - 1
        latest = "SELECT n FROM completion WHERE id < ? ORDER BY id DESC LIMIT 1"
        found = self._connection.execute(latest, (before,)).fetchone()
        return found[0] + 1 if found else 0

    def _numbers(self, begin: int, end: int, most: int) -> list[int]:
        if not self._expression:
            return []
        rows = self._connection.execute(
            """SELECT rowid FROM search WHERE search MATCH ? AND rowid >= ? AND rowid < ?
            ORDER BY rowid DESC LIMIT ?""",
            (self._expression, begin, end, most),
        )
        return [number for (number,) in rows]


def _expression(given: str) -> str:
    """Return a query of FTS5 for all words, in any order; the last may be the beginning of one. "": no words."""
    found = WORD.findall(given)
    unfinished = found and given.endswith(found[-1]) and len(found[-1]) >= PREFIX
    return " ".join(f'"{word}"' for word in found) + ("*" if unfinished else "")


def register(connection: sqlite3.Connection) -> None:
    """Make the function ``searched`` known to a connection that writes."""
    connection.create_function("searched", 2, _searched, deterministic=True)


def _searched(prompt: bytes | None, reply: bytes | None) -> str:
    try:
        return searched(prompt, reply)
    except ValueError:
        return ""  # a damaged text; `burnish doctor --deep` reports it


def added(completions: Iterable[tuple[str, bytes | None, bytes | None]]) -> list[tuple[str, str]]:
    """Return the pairs for ``ADD``: takes IDs, prompts and replies."""
    found = ((name, _searched(prompt, reply)) for name, prompt, reply in completions)
    return [(name, text) for name, text in found if text]
