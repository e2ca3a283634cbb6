"""A rating as it is typed after an answer, and what is said about it."""

from __future__ import annotations

from typing import Any

from burnish.cli.rate import teaching
from burnish.proxy.records import LIKERT, LIKERT_IN_WORDS
from burnish.terminal.terminal import short, verdict

WORDS = {"g": "good", "good": "good", "+": "good", "b": "bad", "bad": "bad", "-": "bad"}
COMMENT, UNDO, SKIP = "c", "u", ""
KEYS = ("g", "b", *LIKERT, COMMENT, UNDO)
"""Keys that are a rating by themselves."""
SHOWN_OF_COMMENT = 40


def read_rating(typed: str) -> dict[str, Any] | None:
    """Return the fields of a feedback request; None if it isn't a rating, but the next message.

    Only a single letter takes a comment: "bad weather today" and "4 more" are messages.
    """
    word, _, remainder = typed.partition(" ")
    comment = remainder.strip()
    if typed in WORDS:
        return {"rating": WORDS[typed]}
    if typed in LIKERT:
        return {"rating": int(typed), "scale": "likert"}
    if not comment:
        return None
    if word == COMMENT:
        return {"comment": comment}
    return {"rating": WORDS[word], "comment": comment} if word in ("g", "b") else None


def off_the_scale(typed: str) -> str | None:
    """Return what is wrong with a single digit that is no rating; None for anything else."""
    if len(typed) > 1 or not typed.isdecimal() or typed in LIKERT:
        return None
    return f"{typed} isn't a rating: {LIKERT_IN_WORDS}. To send it as a message, press Enter first."


def resembles_rating(message: str) -> bool:
    """Return whether a message may have been meant as a rating with a comment."""
    return message.partition(" ")[0].strip(":,.").lower() in ("good", "bad")


def said(record: dict[str, Any], *, trains: bool, instructs: bool) -> str:
    """Return what became of a rating: what was stored, and what it will do.

    ``trains``: burnish trains from ratings. ``instructs``: comments are added to the system prompt.
    """
    rating, comment = verdict(record["reward"], record["scale"]), record["comment"]
    quoted = f"“{short(comment, SHOWN_OF_COMMENT)}”" if comment else ""
    if not rating:
        what = f"[dim]comment saved:[/] {quoted}"
    elif comment:
        what = f"[dim]rated[/] {rating} [dim]with your comment[/] {quoted}"
    else:
        what = f"[dim]rated[/] {rating}"
    again = " [dim](as before)[/]" if record["repeated"] else ""
    return f"{what}{again}{teaching(record)}{_effect(record, trains=trains, instructs=instructs)}"


def _effect(record: dict[str, Any], *, trains: bool, instructs: bool) -> str:
    good = (record["reward"] or 0) > 0
    effects = []
    if record["comment"] and instructs and not good:
        effects.append("it is in the system prompt from now on")
    if record["usable"]:
        effects.append(
            "the next training run can learn from it" if trains else "training is off: burnish status"
        )
        if (record["reward"] or 0) < 0 and not record["comment"]:
            effects.append("words teach more: b too long")
    return f"[dim]; {'; '.join(effects)}[/]" if effects else ""
