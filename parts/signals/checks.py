"""Which commands check code, and whether the way they are called lets them fail. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from burnish.parts.signals.shell import REMEMBERED, SHELLS, Simple, simple_commands

TESTS: tuple[tuple[str, ...], ...] = (
    ("pytest",), ("py.test",), ("unittest",), ("manage.py", "test"), ("jest",), ("vitest",), ("npm", "test"),
    ("npm", "run", "test"), ("pnpm", "test"), ("pnpm", "run", "test"), ("yarn", "test"), ("yarn", "run", "test"),
    ("bun", "test"), ("bun", "run", "test"), ("go", "test"), ("cargo", "test"), ("cargo", "nextest"), ("make", "test"),
    ("make", "check"), ("just", "test"), ("tox",), ("nox",), ("gradle", "test"), ("gradlew", "test"), ("mvn", "test"),
    ("ctest",), ("rspec",), ("phpunit",), ("dotnet", "test"), ("swift", "test"), ("mix", "test"), ("deno", "test"),
)  # fmt: skip
"""Programs, or programs with their first words, that run tests."""
CHECKS: tuple[tuple[str, ...], ...] = (
    ("cargo", "check"), ("cargo", "build"), ("cargo", "clippy"), ("go", "build"), ("go", "vet"), ("tsc",), ("mypy",),
    ("pyright",), ("ruff", "check"), ("eslint",), ("flake8",), ("make", "build"), ("make", "lint"),
    ("npm", "run", "build"), ("npm", "run", "lint"), ("npm", "run", "typecheck"),
    ("pnpm", "build"), ("pnpm", "lint"), ("yarn", "build"), ("yarn", "lint"),
    ("dotnet", "build"), ("swift", "build"), ("gradlew", "build"), ("javac",),
)  # fmt: skip
"""The same of compilers, type checkers and linters."""
COUNTED = frozenset({"pytest", "py.test", "unittest", "jest", "vitest", "go", "cargo"})
"""Runners that always say how many tests passed: without that, their exit code alone says nothing good."""
MODULES = re.compile(r"python[\d.]*")
PRINTS = frozenset(
    {"echo", "printf", "cat", "head", "tail", "sed", "awk", "python", "python3", "node", "perl", "ruby"}
)
_SYSTEM = r"(?:(?:/usr|/opt|/snap|/nix)(?:/[\w.+-]+)*|(?:~|/root|/home/[\w.-]+)/\.[\w.-]+(?:/[\w.+-]+)*)?/bin"
_ENVIRONMENT = r"(?:[\w./~-]*/)?(?:(?:\.?v?env|\.(?:tox|nox)/[\w.-]+)/bin|node_modules/\.bin|vendor/bin)"
INSTALLED = re.compile(
    rf"\A(?:(?:(?:{_SYSTEM}|{_ENVIRONMENT})/)?[\w.+-]+|(?:\./)?(?:gradlew|mvnw|manage\.py))\Z"
)
"""How a program is named that isn't a file of the project: its name alone, or in a folder of installed programs."""
PASSES_ON = frozenset({"tail", "tee", "cat"})
"""What may stand behind a pipe: the end of the output, where the counts are, goes through."""
NARROWING = frozenset({
    "-k", "-m", "--deselect", "--ignore", "--ignore-glob", "--lf", "--last-failed", "--sw", "--stepwise",
    "--collect-only", "--co", "-o", "--override-ini", "--noconftest", "-c", "-p", "--exclude", "--skip", "-t",
    "--testNamePattern", "--testPathIgnorePatterns", "--passWithNoTests", "--onlyChanged", "--changed",
    "--listTests", "--list", "-skip", "-run", "-short", "--no-run", "--dry-run", "--filter", "--if-present",
    "--fixtures", "--version", "--help", "-h",
})  # fmt: skip
"""Options that leave tests out, or run none."""
NARROWING_MAKE = frozenset(
    {"-n", "--just-print", "--dry-run", "-i", "--ignore-errors", "-t", "--touch", "-q"}
)
TO_A_FILE = "the output of the check went to a file, so nobody saw how it ended"
FILTERED = "the output of the check went through another program, which may hide failures"
INSIDE = "the tests ran inside of a longer command, so how they ended isn't clear"
FOLLOWED = "more commands follow the check and hide how it ended"
SILENCED = {
    "||": "the command goes on if the check fails (`||`), so it can't fail",
    "&": "the check ran in the background, so how it ended isn't known",
}
LOOKS_LIKE_TESTS = re.compile(
    r"\b(?:pytest|py\.test|unittest|jest|vitest|tox|nox|rspec|phpunit|ctest)\b"
    r"|\b(?:go|cargo|npm|pnpm|yarn|bun|make|mvn|gradlew?|dotnet|swift|mix|deno)(?: run)? (?:test|check)\b"
)


class CheckCommand(NamedTuple):
    name: str
    """Such as ``pytest`` or ``cargo build``."""
    tests: bool
    counted: bool
    narrowed: bool
    """Whether an option leaves tests out."""
    piped: bool
    """Its exit code is that of another program."""
    printed: bool = False
    """Whether a command before it prints something, which may look like counts."""
    obstacle: str | None = None
    """Why its end says nothing."""


def check_in(command: str) -> CheckCommand | None:
    """Return the check that a command runs; None if it runs none."""
    simple = simple_commands(command)
    for index, part in enumerate(simple or ()):
        if check := check_of(part):
            obstacle = _silenced(part, (simple or ())[index + 1 :])
            if check.tests or not obstacle:
                printed = any(earlier.program in PRINTS for earlier in (simple or ())[:index])
                return check._replace(piped=part.joint == "|", printed=printed, obstacle=obstacle)
    inside = simple is None or any(part.program in SHELLS for part in simple)
    if inside and LOOKS_LIKE_TESTS.search(command):
        return CheckCommand("tests", True, counted=False, narrowed=False, piped=True, obstacle=INSIDE)
    return None


@lru_cache(maxsize=REMEMBERED)
def check_of(simple: Simple) -> CheckCommand | None:
    if not simple.words or not INSTALLED.match(simple.words[0]):
        return None
    words = _plain_words(simple)
    for names, tests in ((TESTS, True), (CHECKS, False)):
        for name in names:
            if words[: len(name)] == name:
                options = {word.partition("=")[0] for word in words[len(name) :]}
                leaving_out = NARROWING_MAKE if name[0] == "make" else NARROWING
                narrowed = bool(options & leaving_out) or any("::" in word for word in words)
                narrowed |= any("PYTEST_ADDOPTS" in word or "RUSTFLAGS" in word for word in simple.prefix)
                return CheckCommand(" ".join(name), tests, name[0] in COUNTED, narrowed, piped=False)
    return None


def _plain_words(simple: Simple) -> tuple[str, ...]:
    """Return the words with ``python -m`` and the like left out, and the program without its folder."""
    words: Sequence[str] = (simple.program, *simple.words[1:])
    if MODULES.fullmatch(simple.program):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] != "-m":
            words = words[1:]
        words = words[1:] if words and words[0] == "-m" else words
    if words and words[0] == "coverage" and "-m" in words:
        words = words[words.index("-m") + 1 :]
    if words[:1] == ("yarn",) and len(words) > 1 and words[1] in ("jest", "vitest"):
        words = words[1:]
    return tuple(word.rpartition("/")[2] if at == 0 else word for at, word in enumerate(words))


def _silenced(check: Simple, next_commands: Sequence[Simple]) -> str | None:
    """Return why a check can't fail as it is called, or why nobody can see it fail."""
    if check.writes:
        return TO_A_FILE
    if check.joint != "|":
        return SILENCED.get(check.joint, FOLLOWED) if check.joint else None
    through = [*takewhile(lambda part: part.joint == "|", next_commands)]
    through += next_commands[len(through) : len(through) + 1]
    if not through or not all(part.program in PASSES_ON and not part.writes for part in through):
        return FILTERED
    return FOLLOWED if through[-1].joint else None
