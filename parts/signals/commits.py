"""What git commands do with edits: keep them, or take them back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from burnish.parts.signals.outcomes import CommandEnd
from burnish.parts.signals.shell import simple_commands

COMMITTED = re.compile(r"^\[[^\]\n]+ ([0-9a-f]{7,40})\]", re.MULTILINE)
"""What ``git commit`` and ``git revert`` say if they made a commit."""
REFUSED = re.compile(r"^(?:error|fatal): ", re.MULTILINE)
EVERYTHING = (".", "./", ":/")
TAKES_VALUE = frozenset({"-C", "-c"})


class Git(NamedTuple):
    """What a command did with the work so far."""

    act: Literal["commit", "revert", "discard", "reset"]
    """discard: files go back to what they were; reset: all do."""
    commit: str = ""
    """The one that was made, or the one that is reverted."""
    files: tuple[str, ...] = ()
    back: bool = False
    """Whether a reset also goes behind commits."""

    @property
    def name(self) -> str:
        return {
            "revert": "git revert",
            "discard": "git checkout or git restore",
            "reset": "git reset --hard",
        }.get(self.act, "git commit")


def gits_in(command: str, outcome: CommandEnd) -> Iterator[Git]:
    """Yield what a command that ended well did."""
    if outcome.code or REFUSED.search(outcome.output):
        return
    for simple in simple_commands(command) or ():
        if simple.program == "git" and (git := _git(simple.words[1:], outcome.output)):
            yield git


def _git(words: Sequence[str], output: str) -> Git | None:
    arguments = list(words)
    while arguments and arguments[0].startswith("-"):
        arguments = arguments[2:] if arguments[0] in TAKES_VALUE else arguments[1:]
    subcommand, options = (arguments[0], arguments[1:]) if arguments else ("", [])
    if subcommand == "commit" and (hashes := COMMITTED.findall(output)):
        return Git("commit", hashes[-1])
    names = [option for option in options if not option.startswith("-")]
    if subcommand == "revert" and COMMITTED.search(output) and names:
        return Git("revert", names[0])
    if subcommand == "reset" and "--hard" in options:
        return Git("reset", back=bool(names) and names[0] != "HEAD")
    if subcommand == "checkout" and ("--" in options or options[-1:] == ["."]):
        return Git(
            "discard", files=tuple(options[options.index("--") + 1 :] if "--" in options else options[-1:])
        )
    if subcommand == "restore" and not {"--staged", "-S", "-p", "--patch"} & set(options):
        return Git("discard", files=tuple(names))
    return None


def covers(files: Sequence[str], path: str) -> bool:
    """Whether files named on a command line cover a path, which may be absolute."""
    for file in files:
        bare = file.removeprefix("./").rstrip("/")
        if file in EVERYTHING or path == bare or path.endswith(f"/{bare}") or f"/{bare}/" in f"/{path}":
            return True
    return False
