"""What is typed in the chat: messages, commands and ratings, and what is said about a rating."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape

from burnish.cli.rate import teaching
from burnish.proxy.records import LIKERT, LIKERT_IN_WORDS
from burnish.terminal.terminal import short, verdict

ASK = "you › "
RATE = "rate › "
WHY = "why › "
HINT = "g/b/1–5, c comment, Enter skips – or just go on"


class Keyboard(Protocol):
    """Each method returns None at the end of the input."""

    def message(self) -> str | None: ...

    def rating(self) -> str | None:
        """Return a rating, or the next message."""

    def why(self) -> str | None: ...

    def remember(self, message: str) -> None:
        """Keep a message, to be found again with the arrow keys."""


class LineKeyboard:
    """Each line is a message or a rating."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def message(self) -> str | None:
        return self._read("\n" + ASK)

    def rating(self) -> str | None:
        return self._read(f"rate ({HINT}): ")

    def why(self) -> str | None:
        return self._read(WHY)

    def remember(self, message: str) -> None:
        pass

    def _read(self, prompt: str) -> str | None:
        try:
            line = self._console.input(prompt)
        except EOFError:
            self._console.print()
            return None
        if not sys.stdin.isatty():  # a terminal would have shown it
            self._console.print(escape(line))
        return line


# -- commands: none of them reaches the model or the log ---------------------------------------------------------------

HELP = {
    "/help": "show this list",
    "/new": "start a new conversation",
    "/undo": "take back your last rating",
    "/exit": "end the chat (also /quit, /bye or Ctrl-D)",
    "/rl …": "burnish's own commands: /rl bad too long, /rl status, /rl help",
}
OTHER_NAMES = {"/quit": "/exit", "/bye": "/exit", "/q": "/exit", "/clear": "/new", "/?": "/help"}
SLASHES = ("/", "／")


def command_name(typed: str) -> str | None:
    """Return the name of a command, which may be unknown; None for a message.

    A text of several lines, or one that begins with a space, is a message.
    """
    if not typed.startswith("/") or "\n" in typed:
        return None
    name = typed.strip().lower()
    return OTHER_NAMES.get(name, name)


def is_rl(typed: str) -> bool:
    """Return whether burnish itself answers a message."""
    if not typed.lstrip().startswith(SLASHES):
        return False
    from burnish.proxy.rl.grammar import parse  # only for a slash: it is slow to import

    return parse(typed) is not None


def command_help() -> str:
    width = max(map(len, HELP))
    return "\n".join(f"  {name:<{width}}  {what}" for name, what in HELP.items())


def unknown_command(name: str) -> str:
    return (
        f"there is no command {name}, so nothing was sent. The commands are:\n{command_help()}\n"
        "  To send a message that begins with /, put a space before it."
    )


# -- ratings -----------------------------------------------------------------------------------------------------------

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


def rating_outcome(record: dict[str, Any], *, trains: bool, instructs: bool) -> str:
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
