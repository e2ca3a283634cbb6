"""Instructions from earlier feedback, in SQLite.

Instructions are read from the comments each time, so undoing feedback removes its instruction too. Only edits by hand
have a table. The ID is a digest of the caller and the words, without case and punctuation: a repeated comment is the
same instruction, and one that was removed by hand stays away.
"""

from __future__ import annotations

import re
import sqlite3
import time
import unicodedata
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import NamedTuple

import orjson

from burnish.proxy.http.errors import Conflict, NotFound, Unprocessable
from burnish.proxy.log import feedback
from burnish.proxy.log.store import as_json
from burnish.proxy.records import Feedback, Instruction

MAX_INSTRUCTIONS = 8
"""As many are added to a system prompt: more would crowd out what the client's own prompt says."""
MAX_CHARACTERS = 200
"""Of one instruction."""

COMMENTS_READ = 100
"""A caller's latest comments, among which the instructions are looked for."""
CHARACTERS_READ = 2000
"""Of one comment; it may have 100,000."""
NAME_BYTES = 5

# Engines take a special token that somebody wrote, such as <|im_end|>, </s> or [INST], for a real one.
SPECIAL = re.compile(r"<(?=[|｜]|/?\w+>)|\[(?=/?[A-Z_]+\])")


class _ByHand(NamedTuple):
    """A row: an instruction added by hand, or a change by hand to one from a comment."""

    text: str | None
    by_hand: bool
    created_at: float


def of(
    connection: sqlite3.Connection, caller: str, heard: Collection[str | None] | None = None
) -> list[Instruction]:
    """Return the instructions of a caller, latest first.

    ``heard``: the keys with which a comment must have come (``Feedback.given_with``); None: any.
    """
    said: dict[str, list[Feedback]] = {}
    for each in _comments(connection, caller):
        if heard is not None and each.draft.given_with not in heard:
            continue
        if wording(text := one_line(each.draft.comment or "")):
            said.setdefault(_name(caller, text), []).append(each)
    rows = connection.execute(
        "SELECT id, text, by_hand, created_at FROM instruction WHERE caller = ?", (caller,)
    )
    own = {name: _ByHand(text, bool(by_hand), created_at) for name, text, by_hand, created_at in rows}
    found = [_instruction(name, said.get(name, []), own.get(name)) for name in said | own]
    return sorted(
        (instruction for instruction in found if instruction),
        key=lambda instruction: instruction.latest_at,
        reverse=True,
    )


def add(connection: sqlite3.Connection, caller: str, text: str) -> Instruction:
    """Add an instruction by hand; one that was removed comes back. Raises Unprocessable, Conflict (too many)."""
    text = _checked(text)
    name = _name(caller, text)
    by_hand = [
        instruction
        for instruction in of(connection, caller)
        if instruction.by_hand and instruction.id != name
    ]
    if len(by_hand) >= MAX_INSTRUCTIONS:
        raise Conflict(
            f"there are {MAX_INSTRUCTIONS} instructions added by hand already: remove one first",
            code="too_many",
        )
    _store(connection, name, caller, text, by_hand=True)
    return _one(connection, caller, name)


def edit(connection: sqlite3.Connection, caller: str, name: str, text: str) -> Instruction:
    """Change the text of an instruction. Raises NotFound, Unprocessable."""
    instruction = _one(connection, caller, name)
    _store(connection, name, caller, _checked(text), by_hand=instruction.by_hand)
    return _one(connection, caller, name)


def remove(connection: sqlite3.Connection, caller: str, name: str) -> Instruction:
    """Remove an instruction for good: no comment brings it back. Raises NotFound."""
    instruction = _one(connection, caller, name)
    _store(connection, name, caller, None, by_hand=False)
    return instruction


def one_line(text: str) -> str:
    """Return a text on one line, cut to what an instruction may have, with nothing in it that steers an engine."""
    shown = (" " if unicodedata.category(each) == "Cc" else each for each in text.strip()[:CHARACTERS_READ])
    plain = SPECIAL.sub(lambda match: match[0] + " ", " ".join("".join(shown).split()))
    return plain if len(plain) <= MAX_CHARACTERS else plain[: MAX_CHARACTERS - 1].rstrip() + "…"


def wording(text: str) -> str:
    """Return what makes two instructions the same: their words, less case, punctuation and spaces; "" for no words."""
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
    completions = as_json({each.draft.completion_id for each in comments})
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


def _instruction(name: str, said: list[Feedback], own: _ByHand | None) -> Instruction | None:
    """Bring what was said and what was done by hand together; None when it was removed, or taken back."""
    if own and (own.text is None or not (own.by_hand or said)):
        return None
    comment = one_line(said[-1].draft.comment or "") if said else None
    times = [each.created_at for each in said] + ([own.created_at] if own else [])
    return Instruction(
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
    return f"inst_{blake2b(said, digest_size=NAME_BYTES).hexdigest()}"


def _checked(text: str) -> str:
    """Return a text as it is stored. Raises Unprocessable."""
    words = " ".join(text.split())
    if len(words) > MAX_CHARACTERS:
        raise Unprocessable(
            f"an instruction may have {MAX_CHARACTERS} characters, not {len(words)}: say it shorter",
            param="text",
        )
    if not wording(words):
        raise Unprocessable("an instruction must have words", param="text")
    return one_line(words)


def _store(
    connection: sqlite3.Connection, name: str, caller: str, text: str | None, *, by_hand: bool
) -> None:
    connection.execute(
        """INSERT INTO instruction VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (id) DO UPDATE SET text = excluded.text, by_hand = excluded.by_hand""",
        (name, caller, text, by_hand, time.time()),
    )


def _one(connection: sqlite3.Connection, caller: str, name: str) -> Instruction:
    found = next((instruction for instruction in of(connection, caller) if instruction.id == name), None)
    if found is None:
        raise NotFound(
            f"there is no instruction {name!r} of {caller!r}; see `burnish instructions`", param="id"
        )
    return found
