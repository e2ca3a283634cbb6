"""What the readers of foreign exports return: answers, and statements about them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from burnish.parts.datasets.spool import Spool
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


class Placed(NamedTuple):
    place: str
    """Of the line that it is from."""
    record: Any


@dataclass(slots=True)
class ParsedExport:
    """All answers and statements in the files of one format."""

    source: str
    problems: list[Problem] = field(default_factory=list)
    """Lines that can't be read."""
    left_out: Counter[str] = field(default_factory=Counter)
    """What was read and isn't imported, by reason."""
    answers: Spool[Placed] = field(default_factory=Spool)
    statements: Spool[Placed] = field(default_factory=Spool)
    """Earliest first."""

    def add(self, place: str, *records: ForeignAnswer | Statement) -> None:
        """Keep what a line holds; what has a known name replaces it."""
        for record in records:
            spool = self.answers if isinstance(record, ForeignAnswer) else self.statements
            moment = record.created_at or 0.0 if isinstance(record, Statement) else 0.0
            spool.put(record.name, Placed(place, record), moment)

    @contextmanager
    def line(self, row: FileRow) -> Iterator[None]:
        """Name a line that can't be read, and go on."""
        try:
            yield
        except Unusable as error:
            self.problems.append(Problem(row.place, str(error)))
