"""The candidates: house conventions that a parser checks, in the words of a prompt and in those of a user."""

from __future__ import annotations

from typing import NamedTuple

from bench.conventions import checks
from bench.conventions.checks import Check, of_tokens, of_tree
from bench.conventions.questions import EXAM, TEACHING, Kind, Question


class Convention(NamedTuple):
    name: str
    kinds: tuple[Kind, ...]
    """Questions to which it applies."""
    check: Check
    sentences: tuple[str, str, str]
    """Wordings for a system prompt."""
    comments: tuple[str, ...]
    """Wordings of a user who saw it violated."""
    against: str
    """A request of the moment for its opposite."""

    @property
    def exam(self) -> list[Question]:
        """Questions of all kinds in turn, so that any number from the start is a fair part."""
        return _in_turn([EXAM[kind] for kind in self.kinds])

    @property
    def teaching(self) -> list[Question]:
        return _in_turn([TEACHING[kind] for kind in self.kinds])


def _in_turn(groups: list[tuple[Question, ...]]) -> list[Question]:
    return [question for row in zip(*groups, strict=True) for question in row]


PLAIN: tuple[Kind, ...] = ("pure", "lookup")

CONVENTIONS: tuple[Convention, ...] = (
    Convention(
        "type-hints",
        PLAIN,
        of_tree(checks.type_hints),
        (
            "Write type hints for every argument and for the return value of every function.",
            "Always annotate functions fully, for example: def f(x: int, names: list[str]) -> bool:",
            "Every function must have type annotations on all parameters and a return type.",
        ),
        (
            "add type hints please",
            "where are the type annotations? we always have them, on the return value too",
            "missing types. every argument and the return need a hint",
            "we use mypy strict here, so annotate the parameters and return types",
            "no type hints again :(",
            "pls write def f(x: int) -> int style signatures",
        ),
        "Don't use any type hints.",
    ),
    Convention(
        "docstrings",
        PLAIN,
        of_tree(checks.docstrings),
        (
            "Write a docstring in every function.",
            'Every function must start with a docstring in triple quotes (""") that says what it does.',
            "Always document each function with a docstring.",
        ),
        (
            "docstring is missing",
            "we want a docstring in every function",
            "please document the function, a docstring right under the def",
            "no docstring? our linter complains about that",
            "you forgot the docstring again",
            "each function gets a docstring in this project",
        ),
        "Don't write a docstring.",
    ),
    Convention(
        "one-line-docstrings",
        PLAIN,
        of_tree(checks.one_line_docstrings),
        (
            "Write a docstring of exactly one line in every function.",
            'Every function has a one-line docstring, for example """Return the sum.""", and nothing longer.',
            "Document each function with a single short docstring line, without sections for arguments or returns.",
        ),
        (
            "docstring should be one line",
            "one line docstrings only please, no Args/Returns sections",
            "way too long docstring. one sentence on one line is enough",
            "we keep docstrings to a single line",
            "give it a docstring that is just one line",
        ),
        "Write a long docstring with sections for arguments and return value.",
    ),
    Convention(
        "no-comments",
        PLAIN,
        of_tokens(checks.no_comments),
        (
            "Never write comments in the code.",
            "Write code without any comments: no line may contain a #.",
            "The code must not contain comments; it must speak for itself.",
        ),
        (
            "no comments in the code please",
            "drop the # comments, the code says it already",
            "we don't comment code like that",
            "remove those comments",
            "too many comments, we write none",
            "stop explaining every line with a #",
        ),
        "Explain each line with a comment in the code.",
    ),
    Convention(
        "logging",
        ("reports",),
        of_tree(checks.logs),
        (
            "Use the logging module instead of print.",
            "Never call print; report with logger = logging.getLogger(__name__) and logger.info().",
            "All messages must go through Python's logging module. print() is forbidden.",
        ),
        (
            "don't print, use logging",
            "we never use print here, use a logger",
            "print() in production code? logging please",
            "this should go to the log, not to stdout (logging.getLogger)",
            "replace the prints by logger.info",
            "no prints! logging module",
        ),
        "Use print for the messages.",
    ),
    Convention(
        "pathlib",
        ("files",),
        of_tree(checks.uses_pathlib),
        (
            "Use pathlib for everything with files, never os or open().",
            "Access files only with pathlib.Path, for example Path(name).read_text(); never use os or open().",
            "Always import Path from pathlib for files and folders; os, shutil and open() are forbidden.",
        ),
        (
            "use pathlib instead",
            "we don't use os / open here, it's pathlib.Path everywhere",
            "please Path(...).read_text() rather than open",
            "pathlib, not os.path",
            "why open()? we have pathlib for that",
            "all file stuff goes through Path in this repo",
        ),
        "Use os and open, not pathlib.",
    ),
    Convention(
        "only-code",
        PLAIN,
        checks.only_code,
        (
            "Answer with a code block only, without any text before or after it.",
            "Reply with nothing but one block of code. No explanation.",
            "Your whole answer must be a single code block; never write prose.",
        ),
        (
            "just the code please",
            "I don't need the explanation, only the code",
            "too much talk. code only",
            "skip the intro and the explanation",
            "no prose, just a code block",
            "stop explaining, I can read code",
        ),
        "Explain in a few sentences how it works.",
    ),
    Convention(
        "f-strings",
        ("reports",),
        of_tree(checks.f_strings),
        (
            "Format texts with f-strings only.",
            'Put every text together with an f-string such as f"{name}: {count}", never with +, % or format().',
            "Always use f-strings for messages; several arguments of print, +, % and .format are forbidden.",
        ),
        (
            "use an f-string",
            "f-strings please, not + or %",
            "we format with f-strings",
            "no .format, it's 2026",
            "that string should be an f-string",
        ),
        "Format texts with the % operator, not with f-strings.",
    ),
    Convention(
        "single-quotes",
        ("reports", "files"),
        of_tokens(checks.single_quotes),
        (
            "Use single quotes for strings.",
            "Write every string with single quotes, for example 'text', never \"text\".",
            "Strings are always in single quotes (').",
        ),
        (
            "single quotes please",
            "we use 'single quotes' for strings",
            "wrong quotes, our formatter wants single ones",
            "strings in single quotes",
            "no double quotes in this codebase",
        ),
        "Use double quotes for all strings.",
    ),
    Convention(
        "no-example",
        PLAIN,
        of_tree(checks.no_example),
        (
            "The code block holds only the function, without example usage.",
            "Never add example calls or prints below the function.",
            "Write the function alone: no example, no test call, no main.",
        ),
        (
            "no example usage please",
            "I paste this into a module, so leave out the example call",
            "drop the print at the end",
            "just the function, not the example below",
            "don't add usage examples",
        ),
        "Add an example call at the end of the code block.",
    ),
    Convention(
        "raise",
        ("lookup",),
        of_tree(checks.raises),
        (
            "Raise a ValueError if there is no result; never return None.",
            "Functions never return None: if something is missing or invalid, they raise a ValueError.",
            "Always check the input and raise an exception for bad input instead of returning None.",
        ),
        (
            "raise an error instead of returning None",
            "we never return None for failures, raise ValueError",
            "what if it isn't there? raise, don't return None",
            "should raise when nothing is found",
            "no silent None please, an exception",
            "bad input must raise a ValueError",
        ),
        "Return None if there is no result; raise nothing.",
    ),
    Convention(
        "future-import",
        PLAIN,
        of_tree(checks.future_import),
        (
            "Start every code block with: from __future__ import annotations",
            "The first line of all Python code is `from __future__ import annotations`.",
            "Always begin Python files with the line from __future__ import annotations.",
        ),
        (
            "from __future__ import annotations is missing at the top",
            "first line should be from __future__ import annotations",
            "our files start with the __future__ import",
            "please add from __future__ import annotations",
            "you forgot the future import",
        ),
        "Write no import of __future__.",
    ),
    Convention(
        "early-return",
        PLAIN,
        of_tree(checks.early_return),
        (
            "Return early: never write else after a branch that returns.",
            "Use guard clauses; an if that returns has no else.",
            "Never use else or elif behind a return or raise.",
        ),
        (
            "no else after return",
            "return early please",
            "the else is not needed, you already returned",
            "use a guard clause instead of if/else",
            "flatten this, early return",
        ),
        "Use if and else, each with a return.",
    ),
)

BY_NAME = {convention.name: convention for convention in CONVENTIONS}
