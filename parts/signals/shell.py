"""Splits the shell commands of agents into simple commands. Pure.

It understands what agents mostly write: commands joined by ``&&``, ``||``, ``;`` and ``|``, with redirections. What it
doesn't understand (loops, subshells, here-documents) is said to be unclear, never guessed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

PUNCTUATION = "();<>|&\n"
UNCLEAR = re.compile(r"`|\$\(|<<")
"""Substitutions and here-documents: what runs isn't written there."""
KEYWORDS = frozenset(
    {"if", "for", "while", "until", "case", "function", "{", "[[", "!", "trap", "eval", "alias", "exec"}
)
JOINTS = frozenset({"&&", "||", ";", "|", "&"})
SHELLS = frozenset({"bash", "sh", "zsh"})
WRAPPERS = frozenset({"env", "time", "nice", "command", "sudo", "npx", "bunx", "xvfb-run", "stdbuf"})
"""Programs that run the command behind them."""
RUNNERS = frozenset({"uv", "poetry", "pipenv", "hatch", "pdm", "rye", "pixi", "bundle", "conda"})
"""The same with ``run`` or ``exec`` between."""
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
LONGEST = 10_000
"""Characters of a command that is taken apart; a longer one holds a file."""
REMEMBERED = 2_000
"""Commands. Each new answer of a session comes with all earlier ones."""
NUMBER = re.compile(r"\d+(\.\d+)?[smh]?")


class Simple(NamedTuple):
    words: tuple[str, ...]
    """Without the wrappers and assignments before the program."""
    prefix: tuple[str, ...]
    """These."""
    joint: str
    """What stands behind it; "" at the end."""
    writes: tuple[str, ...]
    """Files that its output goes to. Joining stderr to stdout isn't one."""

    @property
    def program(self) -> str:
        return self.words[0].rpartition("/")[2] if self.words else ""


@lru_cache(maxsize=REMEMBERED)
def simple_commands(command: str) -> tuple[Simple, ...] | None:
    """Return the simple commands of a shell command; None if it isn't only made of them."""
    if len(command) > LONGEST or UNCLEAR.search(command):
        return None
    try:
        tokens = list(_tokens(command))
    except ValueError:  # an open quote
        return None
    commands, words = list[Simple](), list[str]()
    for token in [*tokens, ";"]:
        if token not in JOINTS:
            words.append(token)
            continue
        if words:
            simple = _simple(words, token)
            if simple is None:
                return None
            commands.append(simple)
            words = []
        elif token != ";":  # noqa: S105  (of a shell)
            return None
    if commands and commands[-1].joint == ";":  # the end is no joint, and neither is a semicolon before it
        commands[-1] = commands[-1]._replace(joint="")
    return tuple(commands)


def script_of(command: object) -> str | None:
    """Return a tool's command as text: it may be a list of words, such as ``["bash", "-lc", "pytest"]``."""
    if isinstance(command, str):
        return command
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    if len(command) == 3 and command[0].rpartition("/")[2] in SHELLS and command[1] in ("-c", "-lc"):  # noqa: PLR2004
        return str(command[2])
    return shlex.join(command)


def _tokens(command: str) -> Iterator[str]:
    """Raises ValueError."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    comment = False
    for token in lexer:
        if comment:
            comment = "\n" not in token
            if comment:
                continue
        if token.startswith("#"):
            comment = True
        elif set(token) <= set(PUNCTUATION):
            yield token.strip("\n") or ";"
        else:
            yield token


def _simple(words: Sequence[str], joint: str) -> Simple | None:
    program_words, writes, tokens = list[str](), list[str](), iter(words)
    for word in tokens:
        if set(word) <= set(PUNCTUATION):
            if set(word) - set("<>&"):
                return None  # a subshell
            target = next(tokens, "")
            if ">" in word and not (word == ">&" and target.isdigit()):
                writes.append(target)
        else:
            program_words.append(word)
    start = _program_at(program_words)
    if start < len(program_words) and program_words[start] in KEYWORDS:
        return None
    return Simple(tuple(program_words[start:]), tuple(program_words[:start]), joint, tuple(writes))


def _program_at(words: Sequence[str]) -> int:
    """Return where the program stands, behind assignments and wrappers."""
    at = 0
    while at < len(words):
        word = words[at].rpartition("/")[2]
        if ASSIGNMENT.match(word) or word in WRAPPERS:
            at += 1
        elif word == "timeout":
            at += 1
            while at < len(words) and (words[at].startswith("-") or NUMBER.fullmatch(words[at])):
                at += 1
        elif word in RUNNERS and words[at + 1 : at + 2] in (["run"], ["exec"]):
            at += 2
        else:
            break
    return at
