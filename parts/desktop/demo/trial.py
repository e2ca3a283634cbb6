"""One half of the demo with one seed: a burnish of its own, a user, and what the user gets before and after."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from burnish.adapters.manifest import BASE_VERSION
from burnish.cli.watch import FAILED, phase_of
from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo.halves import Half
from burnish.parts.desktop.demo.outcome import HELD_OUT, SAMPLES, Exam, TrialOutcome
from burnish.parts.desktop.demo.progress import RunBar, shown
from burnish.parts.desktop.demo.questions import QUESTIONS
from burnish.parts.desktop.demo.running import DidNotStart, burnish
from burnish.parts.desktop.demo.user import User
from burnish.terminal.client import Proxy
from burnish.terminal.errors import CommandFailed

# Long past what the slowest machine needs; a run that takes longer hangs.
LEARN_LIMIT_S = 3600.0
# A run starts a few seconds after the last request.
START_LIMIT_S = 120.0
POLL_S = 0.5
# You asked for the run, whatever else the machine does.
TRAIN_AT_ONCE = {
    "BURNISH_TRAIN__ON_BATTERY": "true",
    "BURNISH_TRAIN__MAX_LOAD": "1",
    "BURNISH_TRAIN__MEMORY_GB": "0",
}


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
    settings = TRAIN_AT_ONCE | {"BURNISH_TRAIN__SEED": str(seed)}
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
