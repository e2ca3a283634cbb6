"""What callers asked for, in SQLite: the comments on answers that were not good, as changed and added to by hand.

Only what was written by hand has a table. The other wishes are the standing comments themselves, read anew each time,
so that taking feedback back takes its wish back, too. A wish is named by who says what, less case and punctuation: said
again it is the same wish, and once removed by hand it stays away, however often it is said again.
"""

from __future__ import annotations

import re
import sqlite3
import time
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import orjson

from burnish.proxy.errors import Conflict, NotFound, Unprocessable
from burnish.proxy.log import feedback
from burnish.proxy.records import Feedback, Wish

MAX_WISHES = 8
"""As many are added to a system prompt: more would crowd out what the client's own prompt says."""
MAX_CHARACTERS = 200
"""Of one wish."""

COMMENTS_READ = 100
"""A caller's latest comments, among which the wishes are looked for."""
CHARACTERS_READ = 2000
"""Of one comment; it may have 100,000."""
NAME_BYTES = 5

# Engines take a special token that somebody wrote, such as <|im_end|>, </s> or [INST], for a real one.
SPECIAL = re.compile(r"<(?=[|｜]|/?\w+>)|\[(?=/?[A-Z_]+\])")


class _ByHand(NamedTuple):
    """A row: a wish added by hand, or what has become of a comment's."""

    text: str | None
    by_hand: bool
    created_at: float


def of(connection: sqlite3.Connection, caller: str) -> list[Wish]:
    """Return what a caller wishes, what was last said first."""
    said: dict[str, list[Feedback]] = {}
    for each in _comments(connection, caller):
        if wording(text := one_line(each.draft.comment or "")):
            said.setdefault(_name(caller, text), []).append(each)
    rows = connection.execute("SELECT id, text, by_hand, created_at FROM wish WHERE caller = ?", (caller,))
    own = {name: _ByHand(text, bool(by_hand), created_at) for name, text, by_hand, created_at in rows}
    found = [_wish(name, said.get(name, []), own.get(name)) for name in said | own]
    return sorted((wish for wish in found if wish), key=lambda wish: wish.latest_at, reverse=True)


def add(connection: sqlite3.Connection, caller: str, text: str) -> Wish:
    """Add a wish by hand, also one that was said or removed before. Raises Unprocessable, Conflict (too many)."""
    text = _checked(text)
    name = _name(caller, text)
    by_hand = [wish for wish in of(connection, caller) if wish.by_hand and wish.id != name]
    if len(by_hand) >= MAX_WISHES:
        raise Conflict(
            f"there are {MAX_WISHES} wishes added by hand already: remove one first", code="too_many"
        )
    _store(connection, name, caller, text, by_hand=True)
    return _one(connection, caller, name)


def edit(connection: sqlite3.Connection, caller: str, name: str, text: str) -> Wish:
    """Change what a wish says. Raises NotFound, Unprocessable."""
    wish = _one(connection, caller, name)
    _store(connection, name, caller, _checked(text), by_hand=wish.by_hand)
    return _one(connection, caller, name)


def remove(connection: sqlite3.Connection, caller: str, name: str) -> Wish:
    """Remove a wish, and return what it was. Raises NotFound."""
    wish = _one(connection, caller, name)
    _store(connection, name, caller, None, by_hand=False)
    return wish


def one_line(text: str) -> str:
    """Return a text on one line, cut to what a wish may have, with nothing in it that steers an engine."""
    shown = (" " if unicodedata.category(each) == "Cc" else each for each in text.strip()[:CHARACTERS_READ])
    plain = SPECIAL.sub(lambda match: match[0] + " ", " ".join("".join(shown).split()))
    return plain if len(plain) <= MAX_CHARACTERS else plain[: MAX_CHARACTERS - 1].rstrip() + "…"


def wording(text: str) -> str:
    """Return what makes two wishes the same: their words, less case, punctuation and spaces; "" for no words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(each if unicodedata.category(each)[0] in "LMNS" else " " for each in folded)
    return " ".join(kept.split()) if any(each.isalnum() for each in kept) else ""


def _comments(connection: sqlite3.Connection, caller: str) -> Iterable[Feedback]:
    """Return a person's latest standing comments on answers that the same person does not call good."""
    comments = feedback.select(
        connection,
        "id IN (SELECT id FROM feedback WHERE rater = ? AND comment IS NOT NULL ORDER BY id DESC LIMIT ?)",
        caller,
        COMMENTS_READ,
    )
    completions = orjson.dumps(list({each.draft.completion_id for each in comments})).decode()
    ratings = feedback.select(
        connection,
        "completion_id IN (SELECT value FROM json_each(?)) AND rater = ? AND reward IS NOT NULL",
        completions,
        caller,
    )
    good = {
        each.draft.completion_id
        for each in ratings
        if each.undone_at is None and each.superseded_by is None and (each.draft.reward or 0.0) > 0
    }
    for each in comments:
        stands = each.undone_at is None and each.superseded_by is None and each.draft.source == "human"
        if stands and each.draft.completion_id not in good:
            yield each


def _wish(name: str, said: list[Feedback], own: _ByHand | None) -> Wish | None:
    """Bring what was said and what was done by hand together; None when it was removed, or taken back."""
    if own and (own.text is None or not (own.by_hand or said)):
        return None
    comment = one_line(said[-1].draft.comment or "") if said else None
    times = [each.created_at for each in said] + ([own.created_at] if own else [])
    return Wish(
        id=name,
        text=(own and own.text) or comment or "",
        comment=comment,
        by_hand=bool(own and own.by_hand),
        feedback_ids=tuple(each.id for each in said),
        first_at=min(times),
        latest_at=max(times),
    )


def _name(caller: str, text: str) -> str:
    said = orjson.dumps([caller, wording(text)])
    return f"wish_{blake2b(said, digest_size=NAME_BYTES).hexdigest()}"


def _checked(text: str) -> str:
    """Return a text as it is stored. Raises Unprocessable."""
    words = " ".join(text.split())
    if len(words) > MAX_CHARACTERS:
        raise Unprocessable(
            f"a wish may have {MAX_CHARACTERS} characters, not {len(words)}: say it shorter", param="text"
        )
    if not wording(words):
        raise Unprocessable("a wish must have words", param="text")
    return one_line(words)


def _store(
    connection: sqlite3.Connection, name: str, caller: str, text: str | None, *, by_hand: bool
) -> None:
    connection.execute(
        """INSERT INTO wish VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (id) DO UPDATE SET text = excluded.text, by_hand = excluded.by_hand""",
        (name, caller, text, by_hand, time.time()),
    )


def _one(connection: sqlite3.Connection, caller: str, name: str) -> Wish:
    found = next((wish for wish in of(connection, caller) if wish.id == name), None)
    if found is None:
        raise NotFound(f"there is no wish {name!r} of {caller!r}; see `burnish wishes`", param="id")
    return found
