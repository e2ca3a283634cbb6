"""The phases of a run and their counters, one line each, in a file of the job directory.

Trainer and proxy take turns at writing it, and ``learner.progress`` reads it. Whatever happens to the file, the
run goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

Phase = Literal[
    "answering",
    "loading",
    "preparing",
    "training",
    "staging",
    "sampling",
    "facts",
    "scoring",
    "judging",
    "swapping",
    "ended",
]
"""In this order. docs/rating.md explains them."""

Thing = TypeVar("Thing")
Group = TypeVar("Group", bound=Sequence[Any])
Watch = Callable[[Sequence[Group]], Iterator[Group]]
"""Yields groups of things, and counts each group once it is done."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One line: a phase has begun, or its counter has moved."""

    phase: str
    at: float
    """Seconds since the epoch."""
    done: int = 0
    total: int | None = None
    """None if there is nothing to count."""


class Phases:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._phase: Phase = "loading"
        self._total: int | None = None
        self._done = 0

    def clear(self) -> None:
        """Begin anew. A run that is judged again has no times to learn from."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def begin(self, phase: Phase, total: int | None = None, count: int = 0) -> None:
        self._phase, self._total, self._done = phase, total, 0
        self.advance(count)

    def advance(self, by: int = 1) -> None:
        self._done += by
        mark = Mark(self._phase, time.time(), self._done, self._total)
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(mark)) + "\n")

    def each(self, things: Sequence[Thing]) -> Iterator[Thing]:
        for (thing,) in self.over([[thing] for thing in things]):
            yield thing

    def over(self, groups: Sequence[Group]) -> Iterator[Group]:
        """Yield groups, and count their members within the current phase, from 0; see ``Watch``."""
        if not groups:
            return
        self.begin(self._phase, sum(len(group) for group in groups))
        for group in groups:
            yield group
            self.advance(len(group))
        self.begin(self._phase)


def read(path: Path) -> list[Mark]:
    """Return the lines so far, without damaged ones."""
    marks = []
    with suppress(OSError), path.open("rb") as file:
        for line in file:
            with suppress(ValueError, TypeError):
                marks.append(Mark(**json.loads(line)))
    return marks


def unwatched(groups: Sequence[Group]) -> Iterator[Group]:
    return iter(groups)
