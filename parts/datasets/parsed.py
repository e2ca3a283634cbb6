"""What the readers of foreign exports return: answers, and statements about them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from burnish.proxy.records import Scope, Source


class Unusable(ValueError):
    """One line, with the reason why it can't be read."""


class FileRow(NamedTuple):
    place: str
    """For people: "line 3", or "chats.json, item 3"."""
    content: dict[str, Any]


class ForeignAnswer(NamedTuple):
    name: str
    """As the export names it, or a digest."""
    messages: tuple[dict[str, Any], ...]
    reply: dict[str, Any]
    tools: tuple[dict[str, Any], ...] = ()
    created_at: float | None = None
    """Seconds since the epoch, UTC."""
    model: str | None = None
    user: str | None = None
    conversation: str | None = None
    """As the export names it; None: answers to the same context form one."""


class Statement(NamedTuple):
    name: str
    """Of the statement, in the export."""
    about: str
    """The name of an answer."""
    metric: str | None = None
    """What ``value`` measures; None: it is known to be a rating from -1 to 1."""
    value: float | None = None
    comment: str | None = None
    correction: str | None = None
    better_than: str | None = None
    """The name of another answer."""
    source: Source = "human"
    user: str | None = None
    created_at: float | None = None
    scope: Scope = "completion"
    demonstration: bool = False
    """The answer is an example, not something that a model said."""


class Problem(NamedTuple):
    place: str
    reason: str

    @property
    def order(self) -> tuple[str, int]:
        """Sorts problems as their lines are."""
        words, _, number = self.place.rpartition(" ")
        return (words, int(number)) if number.isdecimal() else (self.place, 0)


@dataclass(slots=True)
class ParsedExport:
    """All answers and statements in the files of one format."""

    source: str
    answers: dict[str, ForeignAnswer] = field(default_factory=dict)
    statements: dict[str, Statement] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """Of answers and statements, by their names."""
    problems: list[Problem] = field(default_factory=list)
    """Lines that can't be read."""
    left_out: Counter[str] = field(default_factory=Counter)
    """What was read and isn't imported, by reason."""

    def add(self, place: str, *records: ForeignAnswer | Statement) -> None:
        """Keep what a line holds; what has a known name replaces it."""
        for record in records:
            by_name: dict[str, Any] = self.answers if isinstance(record, ForeignAnswer) else self.statements
            by_name[record.name] = record
            self.places[record.name] = place

    @contextmanager
    def line(self, row: FileRow) -> Iterator[None]:
        """Name a line that can't be read, and go on."""
        try:
            yield
        except Unusable as error:
            self.problems.append(Problem(row.place, str(error)))
