"""``burnish demo``: a simulated user rates 40 answers, burnish learns, and both are shown side by side."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from burnish.adapters.extras import how_to_install
from burnish.adapters.manifest import BASE_VERSION
from burnish.proxy.cli.client import Proxy
from burnish.proxy.cli.demo import report
from burnish.proxy.cli.demo.questions import BRIEFLY, QUESTIONS
from burnish.proxy.cli.demo.report import HELD_OUT, SAMPLES, Outcome
from burnish.proxy.cli.demo.running import DidNotStart, burnish
from burnish.proxy.cli.demo.user import User, brief, summarise
from burnish.proxy.cli.errors import CommandFailed, WrongUsage
from burnish.proxy.cli.terminal import Json, console, printed_json
from burnish.proxy.config import TrainConfig

# Long past what the slowest machine needs; a run that takes longer hangs.
LEARN_LIMIT_S = 3600.0
# A run starts a few seconds after the last request.
START_LIMIT_S = 120.0
POLL_S = 0.5
FEWEST_RATINGS = 16
# With fewer ratings than the default wants, a run starts after this share: an empty answer, say, teaches nothing.
ENOUGH_SHARE = 0.8

_Each = TypeVar("_Each")


def demo(
    seeds: Annotated[str, typer.Option("--seeds", "--seed", help="Seeds, separated by commas.")] = "0",
    ratings: Annotated[int, typer.Option(min=FEWEST_RATINGS, help="Answers that the user rates.")] = 40,
    upstream: Annotated[
        str | None,
        typer.Option(help="Learn in this engine instead of the embedded one; it is left as it was."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for demo.png, demo.md and demo.json.")] = Path(
        "burnish-demo"
    ),
    as_json: Json = False,
) -> None:
    """Runs a burnish of its own on a free port with a data directory that is thrown away."""
    _check(ratings)
    _make(out)
    # As for Ctrl-C, everything that the demo has started ends.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    import openai

    outcomes, failures = [], []
    for seed in _seeds(seeds):
        try:
            outcomes.append(run(seed, ratings, upstream=upstream, quiet=as_json))
        except (CommandFailed, openai.OpenAIError, httpx.HTTPError) as error:
            failures.append(f"seed {seed}: {error}")
    if outcomes:
        _report(outcomes, seeds, out, as_json)
    if failures:
        raise CommandFailed("\n".join(failures))


def _report(outcomes: list[Outcome], seeds: str, out: Path, as_json: bool) -> None:
    content = [asdict(outcome) for outcome in outcomes]
    (out / "demo.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "demo.md").write_text(report.markdown(outcomes, seeds, out), encoding="utf-8")
    report.plot(outcomes, out / "demo.png")
    if printed_json(content, as_json):
        return
    report.show(outcomes)
    console.print(f"\n[dim]written: {out / 'demo.png'}, {out / 'demo.md'}, {out / 'demo.json'}[/]")


def run(seed: int, ratings: int, *, upstream: str | None = None, quiet: bool = False) -> Outcome:
    """Let one user talk to a fresh burnish until it has learnt. Raises CommandFailed when nothing goes live."""
    order = random.Random(seed).sample(QUESTIONS, len(QUESTIONS))
    rated, held_out = order[:ratings], order[-HELD_OUT:] * SAMPLES
    with tempfile.TemporaryDirectory(prefix="burnish-demo-") as folder, _bars(quiet) as bars:
        bar = bars.add_task(f"seed {seed}: starting", total=None)
        with _burnish(Path(folder), seed, ratings, upstream) as proxy, User(proxy.url, BRIEFLY) as user:
            _check_learner(proxy)
            bars.update(bar, description=f"seed {seed}: asking before", total=len(held_out))
            before = list(_counted(user.ask_all(held_out), bars, bar))
            bars.reset(bar, description=f"seed {seed}: asking and rating", total=ratings)
            began, good = time.monotonic(), 0
            for question in _counted(rated, bars, bar):
                answered = user.ask(question)
                user.rate(answered, answered.satisfies(brief))
                good += answered.satisfies(brief)
            _wait_until_live(proxy, bars, bar, seed)
            minutes = (time.monotonic() - began) / 60
            bars.reset(bar, description=f"seed {seed}: asking after", total=len(held_out))
            after = list(_counted(user.ask_all(held_out), bars, bar))
            version = proxy.get("/burnish/adapters/1")
            proxy.post("/burnish/adapters/rollback", {"to": BASE_VERSION})
    metrics = version["manifest"]["metrics"]
    return Outcome(
        seed=seed,
        ratings=ratings,
        good=good,
        before=summarise(before, brief),
        after=summarise(after, brief),
        kl_per_token=next(c["value"] for c in version["verdict"]["checks"] if c["name"] == "kl"),
        minutes=minutes,
        train_seconds=metrics["seconds"],
        peak_rss_bytes=metrics["peak_rss_bytes"],
        reason=version["reason"],
        answers_before=before,
        answers_after=after,
    )


@contextmanager
def _burnish(folder: Path, seed: int, ratings: int, upstream: str | None) -> Iterator[Proxy]:
    """Run ``burnish up`` as anyone would, on a free port and an empty data directory. Raises CommandFailed."""
    enough = min(TrainConfig().min_ratings, int(ENOUGH_SHARE * ratings))
    settings = {"BURNISH_TRAIN__MIN_RATINGS": str(enough), "BURNISH_TRAIN__SEED": str(seed)}
    if upstream:
        settings["BURNISH_UPSTREAM"] = upstream
    try:
        with burnish(folder, settings) as url:
            yield Proxy(url)
    except DidNotStart as error:
        raise CommandFailed(f"burnish did not start:\n{error}") from error


def _check_learner(proxy: Proxy) -> None:
    """Raises CommandFailed if the upstream can't be trained, before any time is spent on it."""
    learner = proxy.get("/burnish/status")["learner"]
    if learner["state"] == "off":
        raise CommandFailed(f"burnish can't learn here: {learner['reason']}")


def _wait_until_live(proxy: Proxy, bars: Progress, bar: Any, seed: int) -> None:
    """Follow the run that burnish starts by itself. Raises CommandFailed when it ends without a live version."""
    began = time.monotonic()
    bars.reset(bar, description=f"seed {seed}: waiting", total=None)
    while time.monotonic() < began + LEARN_LIMIT_S:
        runs: list[dict[str, Any]] = proxy.get("/burnish/runs", limit=1)["runs"]
        if not runs:
            reason = proxy.get("/burnish/status")["learner"]["reason"]
            if time.monotonic() > began + START_LIMIT_S:
                raise CommandFailed(f"no run has started: {reason}")
            bars.update(bar, description=f"seed {seed}: {escape(reason[:70])}")
        elif runs[0]["ended_at"] is None:
            step = runs[0]["progress"] or {}
            training = runs[0]["status"] == "training" and step
            bars.update(
                bar,
                description=f"seed {seed}: {runs[0]['status']}",
                total=step["steps"] if training else None,
                completed=step["step"] if training else 0,
            )
        elif runs[0]["status"] == "live":
            return
        else:
            raise CommandFailed(f"nothing went live: the run {runs[0]['status']}: {runs[0]['reason']}")
        time.sleep(POLL_S)
    raise CommandFailed(f"no version went live within {LEARN_LIMIT_S / 60:.0f} minutes")


def _bars(quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True)


def _counted(each: Iterable[_Each], bars: Progress, bar: Any) -> Iterator[_Each]:
    for one in each:
        yield one
        bars.advance(bar)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise WrongUsage(f"seeds are whole numbers separated by commas, not {text!r}") from None


def _check(ratings: int) -> None:
    missing = [name for name in ("openai", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandFailed(f"the demo needs {', '.join(missing)}; run: {how_to_install('demo')}")
    if ratings > len(QUESTIONS) - HELD_OUT:
        raise WrongUsage(
            f"there are questions for {len(QUESTIONS) - HELD_OUT} ratings at most, not {ratings}"
        )


def _make(out: Path) -> None:
    """Make the folder of the results before minutes are spent on them. Raises WrongUsage."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise WrongUsage(
            f"can't write into the folder {out} ({error.strerror}): name another with --out"
        ) from error
