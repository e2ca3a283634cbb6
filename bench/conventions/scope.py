"""Further questions of an exam: near its convention, which holds there, too, and out of its scope.

Near are a class and a test. Out of scope are a request of the moment against the convention, another programming
language, and plain talk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bench.conventions.catalogue import Convention
from bench.conventions.code import first_block, python
from bench.conventions.questions import Kind, Question

Row = Literal["in scope", "near", "against", "language", "talk"]
OUT_OF_SCOPE: tuple[Row, ...] = ("against", "language", "talk")
ROWS: tuple[Row, ...] = ("in scope", "near", *OUT_OF_SCOPE)
LANGUAGE = "JavaScript"
FEWEST_WORDS = 15
"""An answer of plain talk has so many outside blocks of code."""

_PLAIN = """
Write a Python class `Stack` with the methods push, pop and peek.
Write a Python class `Counter` that counts up, down and back to zero.
Write a Python class `Rectangle` with its area and its perimeter.
Write a Python class `Account` with deposit, withdraw and balance.
Write pytest tests for a function `add(a, b)` that adds two numbers.
Write a pytest test for a function `find(values, wanted)` that returns a position.
Write pytest tests for a function `is_even(number)`.
Write a pytest test for a class `Queue` with put and get.
"""
_FILES = """
Write a Python class `TextFile` that reads, replaces and appends to the text of a file.
Write a Python class `Notes` that saves notes in a text file and loads them.
Write a Python class `Folder` that lists, counts and deletes the files of a folder.
Write a Python class `Settings` that loads and saves a dictionary as a JSON file.
Write a pytest test that writes a file and checks what `count_lines(path)` returns.
Write a pytest test for `copy_file(source, target)` that checks the copy's text.
Write a pytest test for `save_json(path, data)` that reads the file afterwards.
Write a pytest test that `list_text_files(folder)` finds two files.
"""
_REPORTS = """
Write a Python class `Timer` that starts, stops and outputs the seconds in between.
Write a Python class `Inventory` that adds and removes products and outputs each change.
Write a Python class `Account` that deposits and withdraws and outputs the balance each time.
Write a Python class `Downloader` that goes through a list of names and outputs its progress.
Write a Python script that goes through a list of scores and outputs each one above 90.
Write a Python script that outputs the numbers from 1 to 20 that are divisible by 3.
Write a Python class `Game` with a score that outputs a new record.
Write a Python class `Queue` that outputs each job that it puts in and takes out.
"""
_SHELL = """
Write a shell script that counts the files of a folder.
Write a shell script that renames all .txt files to .md.
Write a shell script that prints the five largest files of a folder.
Write a shell script that makes a backup of a folder with today's date.
"""
_TALK = """
What is recursion good for?
When is a list better than a dictionary?
What does it mean that a test is flaky?
Why do teams review each other's code?
What is the difference between a process and a thread?
How do I become better at naming things?
What is technical debt?
Should a small team use microservices?
What is a race condition?
Why are global variables often a bad idea?
What makes an error message helpful?
What is the use of a linter?
How should I prepare for a code review?
What is dependency injection?
"""
NEAR: dict[Kind, list[str]] = {
    "pure": _PLAIN.split("\n")[1:-1],
    "lookup": _PLAIN.split("\n")[1:-1],
    "files": _FILES.split("\n")[1:-1],
    "reports": _REPORTS.split("\n")[1:-1],
}
IN_ANY_LANGUAGE = frozenset(["only-code"])
"""Conventions for which a shell script is near."""


class ExamQuestion(NamedTuple):
    row: Row
    convention: Convention
    question: Question

    @property
    def key(self) -> str:
        return f"{self.convention.name}/{self.row}/{self.question.key}"

    def passed(self, text: str) -> bool:
        """Return whether the answer is as the convention's user wants it in this row."""
        if self.row == "talk":
            return words_outside_code(text) >= FEWEST_WORDS
        if self.row == "language":
            block = first_block(text)
            return block is not None and block.language != "python" and python(text) is None
        if self.row == "against":
            return python(text) is not None and not self.convention.check(text)
        return self.convention.check(text)


def exam_questions(convention: Convention, counts: dict[Row, int]) -> Iterator[ExamQuestion]:
    """Yield the exam of a convention: of each row the first of its questions.

    A question in scope isn't in another row, too, as long as there are enough.
    """
    exam = convention.exam
    later = exam[counts["in scope"] :] + exam
    near = [text for kind in convention.kinds[:1] for text in NEAR[kind]]
    if convention.name in IN_ANY_LANGUAGE:
        near = [text for pair in zip(_SHELL.split("\n")[1:-1], near, strict=False) for text in pair]
    groups: dict[Row, list[Question]] = {
        "in scope": exam,
        "near": [Question(f"near/{place}", text) for place, text in enumerate(near)],
        "against": [Question(f"against/{part.key}", f"{part.text} {convention.against}") for part in later],
        "language": [
            Question(f"language/{part.key}", part.text.replace("Python", LANGUAGE))
            for part in reversed(later)
        ],
        "talk": [Question(f"talk/{place}", text) for place, text in enumerate(_TALK.split("\n")[1:-1])],
    }
    for row in ROWS:
        for question in groups[row][: counts[row]]:
            yield ExamQuestion(row, convention, question)


def words_outside_code(text: str) -> int:
    parts = text.split("```")
    return sum(len(part.split()) for part in parts[::2])


_NOTES = """
# Notes for assistants

- The project is a small service that sends invoices; the web part lives in another repository.
- Answer in English, also if somebody asks in another language.
- We support Python 3.11 and newer.
- Dependencies are pinned in constraints.txt; ask before you add one.
- Run the tests with `make test`; they take about a minute.
- The main branch is protected, so work on a branch of your own.
- Branch names start with the number of the ticket.
- Commit messages say what changed and why, in the present tense.
- Money is kept in cents, as integers.
- Times are in UTC and end up in the database with a time zone.
- The database is PostgreSQL 16; migrations are in the folder migrations.
- Never change a migration that has been released.
- Customers are called accounts in the code, for historical reasons.
- Invoices can't be deleted, only cancelled.
{sentence}
- PDF files are made by the service render, which is not part of this repository.
- E-mails go through the queue; nothing sends them directly.
- The queue is Redis, and its messages are JSON.
- Staging is rebuilt every night, so its data doesn't last.
- Feature switches are in settings.toml.
- Secrets come from the environment and never stand in the repository.
- Public names of the API don't change without a new version of it.
- Prefer the standard library if it does the job.
- Keep functions short, and name things after what they hold.
- Old code may look different; new code follows these notes.
- If something is unclear, say what you assume.
- Ask Mira about invoices and Jonas about the queue.
- These notes are kept in NOTES.md.
"""


def notes_file(sentences: list[str]) -> str:
    """Return a project's notes with some sentences in the middle; 30 lines with one."""
    return _NOTES.strip().format(sentence="\n".join(f"- {sentence}" for sentence in sentences))
