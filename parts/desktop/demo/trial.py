"""One half of the demo with one seed: a burnish of its own, a user, and what the user gets before and after."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from burnish.adapters.manifest import BASE_VERSION
from burnish.cli.watch import FAILED, phase_of
from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo.halves import Half
from burnish.parts.desktop.demo.outcome import HELD_OUT, SAMPLES, Exam, TrialOutcome
from burnish.parts.desktop.demo.questions import QUESTIONS
from burnish.parts.desktop.demo.running import DidNotStart, burnish
from burnish.parts.desktop.demo.user import User
from burnish.terminal.client import Proxy
from burnish.terminal.errors import CommandFailed
from burnish.terminal.terminal import console

# Long past what the slowest machine needs; a run that takes longer hangs.
LEARN_LIMIT_S = 3600.0
# A run starts a few seconds after the last request.
START_LIMIT_S = 120.0
POLL_S = 0.5
LONGEST = 70
"""Of a step's description, in characters: the bar needs room, too."""

_Step = TypeVar("_Step")


class RunBar:
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


class NoLearner(CommandFailed):
    """burnish doesn't start, or can't learn here: no other half or seed would fare better."""


def run(half: Half, seed: int, *, upstream: str | None, quiet: bool) -> TrialOutcome:
    """Let one user talk to a fresh burnish until the gate has judged what it learnt. Raises CommandFailed."""
    order = random.Random(seed).sample(QUESTIONS, len(QUESTIONS))
    questions, held_out = order[:-HELD_OUT], order[-HELD_OUT:]
    with (
        tempfile.TemporaryDirectory(prefix="burnish-demo-") as folder,
        shown(f"{half.name}, seed {seed}", quiet=quiet) as screen,
        _burnish(Path(folder), seed, upstream) as proxy,
        User(proxy.url, half.system) as user,
    ):
        model = _check_learner(proxy)
        exam_before = examine(user, held_out, screen, "before")
        began = time.monotonic()
        screen.step("asking and rating", half.count)
        ratings = list(screen.counted(user.teach(half, questions, seed)))
        live = wait_for_verdict(proxy, screen)
        minutes = (time.monotonic() - began) / 60
        screen.note(
            f"{'live' if live else 'nothing went live'}, {minutes:.1f} minutes after the first rating"
        )
        exam_after = examine(user, held_out, screen, "after")
        version = proxy.get("/burnish/adapters/1")
    metrics = version["manifest"]["metrics"]
    return TrialOutcome(
        half=half,
        seed=seed,
        model=model,
        ratings=len(ratings),
        good=sum(ratings),
        live=live,
        exam_before=exam_before,
        exam_after=exam_after,
        kl_per_token=next(c["value"] for c in version["verdict"]["checks"] if c["name"] == "kl"),
        minutes=minutes,
        train_seconds=metrics["seconds"],
        peak_rss_bytes=metrics["peak_rss_bytes"],
        reason=version["reason"],
    )


def examine(user: User, held_out: Sequence[str], screen: RunBar, when: str) -> Exam:
    """Ask the live version what it was never rated on, with the same seeds before and after."""
    questions = list(held_out) * SAMPLES
    screen.step(f"asking {when}", len(questions) + len(FACTS))
    answers = list(screen.counted(user.ask_all(questions, first_seed=0)))
    exam = Exam(answers, facts=sum(screen.counted(user.known_facts())))
    screen.note(f"{when}: {exam.summary.satisfied:.0%} short, {exam.facts} of {len(FACTS)} facts known")
    return exam


@contextmanager
def _burnish(folder: Path, seed: int, upstream: str | None) -> Iterator[Proxy]:
    """Run ``burnish up`` as anyone would, on a free port and an empty data directory. Raises NoLearner.

    At the end the base model is live again, so that an engine of somebody else's is left as it was.
    """
    settings = {"BURNISH_TRAIN__SEED": str(seed)}
    if upstream:
        settings["BURNISH_UPSTREAM"] = upstream
    try:
        with burnish(folder, settings) as url:
            proxy = Proxy(url)
            try:
                yield proxy
            finally:
                if upstream:
                    with suppress(CommandFailed):
                        proxy.post("/burnish/adapters/rollback", {"to": BASE_VERSION})
    except DidNotStart as error:
        raise NoLearner(f"burnish did not start:\n{error}") from error


def _check_learner(proxy: Proxy) -> str:
    """Return the model's name. Raises NoLearner if it can't be trained, before any time is spent on it."""
    status = proxy.get("/burnish/status")
    learner = status["learner"]
    if learner["state"] == "off":
        raise NoLearner(f"burnish can't learn here: {learner['reason']}")
    return str(status["live"]["name"])


def wait_for_verdict(proxy: Proxy, screen: RunBar) -> bool:
    """Follow the run that burnish starts by itself; return whether its version went live. Raises CommandFailed."""
    began = time.monotonic()
    while time.monotonic() < began + LEARN_LIMIT_S:
        runs: list[dict[str, Any]] = proxy.get("/burnish/runs", limit=1)["runs"]
        if not runs:
            reason = proxy.get("/burnish/status")["learner"]["reason"]
            if time.monotonic() > began + START_LIMIT_S:
                raise CommandFailed(f"no run has started: {reason}")
            screen.step(reason)
        elif runs[0]["ended_at"] is None:
            screen.step(*phase_of(runs[0]))
        elif runs[0]["status"] in FAILED:
            raise CommandFailed(f"the run {runs[0]['status']}: {runs[0]['reason']}")
        else:
            return bool(runs[0]["status"] == "live")
        time.sleep(POLL_S)
    raise CommandFailed(f"the run didn't end within {LEARN_LIMIT_S / 60:.0f} minutes")
