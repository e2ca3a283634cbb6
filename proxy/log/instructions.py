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
from dataclasses import dataclass
from hashlib import blake2b

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


@dataclass(frozen=True, slots=True)
class InstructionRow:
    """An instruction added by hand, or a change by hand to one from a comment, as it is stored."""

    id: str
    caller: str
    text: str | None
    """None: removed."""
    by_hand: bool
    created_at: float
    """Seconds since the epoch, UTC."""


def rows(
    connection: sqlite3.Connection, clauses: str = "ORDER BY id", *values: object
) -> list[InstructionRow]:
    """Return what was added or changed by hand; ``clauses`` are one of our own literals, with its values bound."""
    query = f"SELECT id, caller, text, by_hand, created_at FROM instruction {clauses}"  # noqa: S608
    return [
        InstructionRow(name, caller, text, bool(by_hand), created_at)
        for name, caller, text, by_hand, created_at in connection.execute(query, values)
    ]


def of(
    connection: sqlite3.Connection, caller: str, keys: Collection[str | None] | None = None
) -> list[Instruction]:
    """Return the instructions of a caller, latest first.

    ``keys``: those with which a comment must have come (``Feedback.given_with``); None: any.
    """
    comments: dict[str, list[Feedback]] = {}
    for comment in _comments(connection, caller):
        if keys is not None and comment.draft.given_with not in keys:
            continue
        if wording(text := one_line(comment.draft.comment or "")):
            comments.setdefault(_name(caller, text), []).append(comment)
    own = {row.id: row for row in rows(connection, "WHERE caller = ?", caller)}
    instructions = [_instruction(name, comments.get(name, []), own.get(name)) for name in comments | own]
    return sorted(
        (instruction for instruction in instructions if instruction),
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
    characters = (
        " " if unicodedata.category(character) == "Cc" else character
        for character in text.strip()[:CHARACTERS_READ]
    )
    plain = SPECIAL.sub(lambda match: match[0] + " ", " ".join("".join(characters).split()))
    return plain if len(plain) <= MAX_CHARACTERS else plain[: MAX_CHARACTERS - 1].rstrip() + "…"


def wording(text: str) -> str:
    """Return what makes two instructions the same: their words, less case, punctuation and spaces; "" for no words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(
        character if unicodedata.category(character)[0] in "LMNS" else " " for character in folded
    )
    return " ".join(letters.split()) if any(character.isalnum() for character in letters) else ""


def _comments(connection: sqlite3.Connection, caller: str) -> Iterable[Feedback]:
    """Return a person's latest standing comments on answers that the same person does not call good."""
    comments = feedback.select(
        connection,
        "id IN (SELECT id FROM feedback WHERE rater = ? AND comment IS NOT NULL ORDER BY id DESC LIMIT ?)",
        caller,
        COMMENTS_READ,
    )
    completions = as_json({comment.draft.completion_id for comment in comments})
    ratings = feedback.select(
        connection,
        "completion_id IN (SELECT value FROM json_each(?)) AND rater = ? AND reward IS NOT NULL",
        completions,
        caller,
    )
    good = {
        rating.draft.completion_id
        for rating in ratings
        if rating.undone_at is None and rating.superseded_by is None and (rating.draft.reward or 0.0) > 0
    }
    for comment in comments:
        stands = (
            comment.undone_at is None and comment.superseded_by is None and comment.draft.source == "human"
        )
        if stands and comment.draft.completion_id not in good:
            yield comment


def _instruction(name: str, comments: list[Feedback], own: InstructionRow | None) -> Instruction | None:
    """Bring what was said and what was done by hand together; None when it was removed, or taken back."""
    if own and (own.text is None or not (own.by_hand or comments)):
        return None
    comment = one_line(comments[-1].draft.comment or "") if comments else None
    times = [piece.created_at for piece in comments] + ([own.created_at] if own else [])
    return Instruction(
        id=name,
        text=(own and own.text) or comment or "",
        comment=comment,
        by_hand=bool(own and own.by_hand),
        feedback_ids=tuple(piece.id for piece in comments),
        first_at=min(times),
        latest_at=max(times),
    )


def _name(caller: str, text: str) -> str:
    content = orjson.dumps([caller, wording(text)])
    return f"inst_{blake2b(content, digest_size=NAME_BYTES).hexdigest()}"


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
    instruction = next(
        (instruction for instruction in of(connection, caller) if instruction.id == name), None
    )
    if instruction is None:
        raise NotFound(
            f"there is no instruction {name!r} of {caller!r}; see `burnish instructions`", param="id"
        )
    return instruction
