"""The demo's progress: a bar on a terminal, and a line for each result anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from burnish.terminal.terminal import console

LONGEST = 70
"""Of a step's description, in characters: the bar needs room, too."""

_Step = TypeVar("_Step")


class RunBar:
    """The bar of one run."""

    def __init__(self, bars: Progress, bar: TaskID, name: str, *, quiet: bool) -> None:
        self._bars, self._bar, self._name, self._quiet = bars, bar, name, quiet
        self._doing = ""

    def step(self, doing: str, total: int | None = None, completed: int = 0) -> None:
        """Show what is done now; a new step restarts the clock."""
        description = escape(f"{self._name}: {doing[:LONGEST]}")
        if doing != self._doing:
            self._bars.reset(self._bar)
            self._doing = doing
        self._bars.update(self._bar, description=description, total=total, completed=completed)

    def counted(self, steps: Iterable[_Step]) -> Iterator[_Step]:
        for step in steps:
            yield step
            self._bars.advance(self._bar)

    def note(self, text: str) -> None:
        if not self._quiet:
            console.print(f"{self._name}: {text}")


@contextmanager
def shown(name: str, *, quiet: bool) -> Iterator[RunBar]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, transient=True) as bars:
        yield RunBar(bars, bars.add_task(f"{name}: starting", total=None), name, quiet=quiet)
