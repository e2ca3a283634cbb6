"""What git commands do with edits: keep them, or take them back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from burnish.parts.signals.outcomes import Outcome
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


def gits_in(command: str, outcome: Outcome) -> Iterator[Git]:
    """Yield what a command that ended well did."""
    if outcome.code or REFUSED.search(outcome.output):
        return
    for each in simple_commands(command) or ():
        if each.program == "git" and (found := _git(each.words[1:], outcome.output)):
            yield found


def _git(words: Sequence[str], output: str) -> Git | None:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in TAKES_VALUE else rest[1:]
    act, given = (rest[0], rest[1:]) if rest else ("", [])
    if act == "commit" and (made := COMMITTED.findall(output)):
        return Git("commit", made[-1])
    if act == "revert" and COMMITTED.search(output) and (named := [each for each in given if each[0] != "-"]):
        return Git("revert", named[0])
    if act == "reset" and "--hard" in given:
        named = [each for each in given if not each.startswith("-")]
        return Git("reset", back=bool(named) and named[0] != "HEAD")
    if act == "checkout" and ("--" in given or given[-1:] == ["."]):
        return Git("discard", files=tuple(given[given.index("--") + 1 :] if "--" in given else given[-1:]))
    if act == "restore" and not {"--staged", "-S", "-p", "--patch"} & set(given):
        return Git("discard", files=tuple(each for each in given if not each.startswith("-")))
    return None


def covers(named: Sequence[str], path: str) -> bool:
    """Whether files named on a command line cover a path, which may be absolute."""
    for each in named:
        bare = each.removeprefix("./").rstrip("/")
        if each in EVERYTHING or path == bare or path.endswith(f"/{bare}") or f"/{bare}/" in f"/{path}":
            return True
    return False
