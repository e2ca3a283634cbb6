"""``burnish demo``: a simulated user says what it likes, burnish learns, and both are shown side by side."""

from __future__ import annotations

import importlib.util
import json
import random
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from burnish.adapters.extras import how_to_install
from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.questions import FACTS
from burnish.proxy.cli.client import Proxy
from burnish.proxy.cli.demo import plot, report
from burnish.proxy.cli.demo.halves import HALVES, Half, Name
from burnish.proxy.cli.demo.outcome import HELD_OUT, SAMPLES, Exam, Outcome, record
from burnish.proxy.cli.demo.questions import QUESTIONS
from burnish.proxy.cli.demo.running import DidNotStart, burnish
from burnish.proxy.cli.demo.user import User
from burnish.proxy.cli.errors import CommandFailed, WrongUsage
from burnish.proxy.cli.terminal import Json, console, printed_json
from burnish.proxy.cli.train import FAILED

# Long past what the slowest machine needs; a run that takes longer hangs.
LEARN_LIMIT_S = 3600.0
# A run starts a few seconds after the last request.
START_LIMIT_S = 120.0
POLL_S = 0.5
# You asked for the run, whatever else the machine does.
NOW = {"BURNISH_TRAIN__ON_BATTERY": "true", "BURNISH_TRAIN__MAX_LOAD": "1", "BURNISH_TRAIN__MEMORY_GB": "0"}

_Each = TypeVar("_Each")


class NoLearner(CommandFailed):
    """burnish doesn't start, or can't learn here: no other half or seed would fare better."""


def demo(
    half: Annotated[Name | None, typer.Option(help="Run one half only (default: both).")] = None,
    seeds: Annotated[str, typer.Option("--seeds", "--seed", help="Seeds, separated by commas.")] = "0",
    upstream: Annotated[
        str | None,
        typer.Option(help="Learn in this engine instead of the embedded one; it is left as it was."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for demo.png, demo.md and demo.json.")] = Path(
        "burnish-demo"
    ),
    as_json: Json = False,
) -> None:
    """Runs burnish on a free port, with a data directory for each half that is thrown away."""
    _check_packages()
    numbers = _seeds(seeds)
    halves = [HALVES[half]] if half else list(HALVES.values())
    _make(out)
    for each in (signal.SIGTERM, signal.SIGHUP):
        # As for Ctrl-C, everything that the demo has started ends.
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    import openai

    if not as_json:
        _announce(halves, len(numbers))
    outcomes, failures = [], []
    for chosen, seed in product(halves, numbers):
        try:
            outcome = run(chosen, seed, upstream=upstream, quiet=as_json)
            outcomes.append(outcome)
            if not outcome.live:
                failures.append(f"{chosen.name}, seed {seed}: nothing went live: {outcome.reason}")
        except NoLearner as error:
            failures.append(str(error))
            break
        except (CommandFailed, openai.OpenAIError, httpx.HTTPError) as error:
            failures.append(f"{chosen.name}, seed {seed}: {error}")
    if outcomes:
        _report(outcomes, out, as_json)
    if failures:
        raise CommandFailed("\n".join(failures))


def _announce(halves: Sequence[Half], seeds: int) -> None:
    console.print(
        "A simulated user likes short answers. It asks through the official openai client.\n"
        f"Before and after: {HELD_OUT} other questions, {SAMPLES} answers each, and {len(FACTS)} facts.\n"
    )
    for half in halves:
        console.print(f"[bold]{half.name}[/]: {half.feedback}; {half.program}")
    minutes = seeds * sum(half.minutes for half in halves)
    console.print(
        f"\nThis takes about {minutes} minutes with the small model on two idle cores. Ctrl-C stops it.\n"
    )


def _report(outcomes: list[Outcome], out: Path, as_json: bool) -> None:
    content = [record(outcome) for outcome in outcomes]
    command = shlex.join(["burnish", *sys.argv[1:]])
    (out / "demo.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "demo.md").write_text(report.markdown(outcomes, command), encoding="utf-8")
    plot.draw(outcomes, out / "demo.png")
    if printed_json(content, as_json):
        return
    report.show(outcomes)
    console.print(f"\n[dim]written: {out / 'demo.png'}, {out / 'demo.md'}, {out / 'demo.json'}[/]")


def run(half: Half, seed: int, *, upstream: str | None = None, quiet: bool = False) -> Outcome:
    """Let one user talk to a fresh burnish until the gate has judged what it learnt. Raises CommandFailed."""
    order = random.Random(seed).sample(QUESTIONS, len(QUESTIONS))
    name = f"{half.name}, seed {seed}"
    with tempfile.TemporaryDirectory(prefix="burnish-demo-") as folder, _bars(quiet) as bars:
        bar = bars.add_task(f"{name}: starting", total=None)
        with _burnish(Path(folder), seed, upstream) as proxy, User(proxy.url, half.system) as user:
            model = _check_learner(proxy)
            before = _test(user, order[-HELD_OUT:], bars, bar, f"{name}: asking before")
            bars.reset(bar, description=f"{name}: asking and rating", total=half.count)
            began = time.monotonic()
            rated = list(_counted(user.teach(half, order[:-HELD_OUT], seed), bars, bar))
            live = _wait_for_verdict(proxy, bars, bar, name)
            minutes = (time.monotonic() - began) / 60
            after = _test(user, order[-HELD_OUT:], bars, bar, f"{name}: asking after")
            version = proxy.get("/burnish/adapters/1")
    metrics = version["manifest"]["metrics"]
    return Outcome(
        half=half,
        seed=seed,
        model=model,
        ratings=len(rated),
        good=sum(rated),
        live=live,
        before=before,
        after=after,
        kl_per_token=next(c["value"] for c in version["verdict"]["checks"] if c["name"] == "kl"),
        minutes=minutes,
        train_seconds=metrics["seconds"],
        peak_rss_bytes=metrics["peak_rss_bytes"],
        reason=version["reason"],
    )


def _test(user: User, held_out: Sequence[str], bars: Progress, bar: Any, doing: str) -> Exam:
    """Ask the live version what it was never rated on."""
    asked = list(held_out) * SAMPLES
    bars.reset(bar, description=doing, total=len(asked) + len(FACTS))
    answers = list(_counted(user.ask_all(asked), bars, bar))
    return Exam(answers, known=sum(_counted(user.known_facts(), bars, bar)))


@contextmanager
def _burnish(folder: Path, seed: int, upstream: str | None) -> Iterator[Proxy]:
    """Run ``burnish up`` as anyone would, on a free port and an empty data directory. Raises NoLearner.

    At the end the base model is live again, so that an engine of somebody else's is left as it was.
    """
    settings = NOW | {"BURNISH_TRAIN__SEED": str(seed)}
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


def _wait_for_verdict(proxy: Proxy, bars: Progress, bar: Any, name: str) -> bool:
    """Follow the run that burnish starts by itself; return whether its version went live. Raises CommandFailed."""
    began = time.monotonic()
    bars.reset(bar, description=f"{name}: waiting", total=None)
    while time.monotonic() < began + LEARN_LIMIT_S:
        runs: list[dict[str, Any]] = proxy.get("/burnish/runs", limit=1)["runs"]
        if not runs:
            reason = proxy.get("/burnish/status")["learner"]["reason"]
            if time.monotonic() > began + START_LIMIT_S:
                raise CommandFailed(f"no run has started: {reason}")
            bars.update(bar, description=f"{name}: {escape(reason[:70])}")
        elif runs[0]["ended_at"] is None:
            step = runs[0]["progress"] or {}
            training = runs[0]["status"] == "training" and step
            bars.update(
                bar,
                description=f"{name}: {runs[0]['status']}",
                total=step["steps"] if training else None,
                completed=step["step"] if training else 0,
            )
        elif runs[0]["status"] in FAILED:
            raise CommandFailed(f"the run {runs[0]['status']}: {runs[0]['reason']}")
        else:
            return bool(runs[0]["status"] == "live")
        time.sleep(POLL_S)
    raise CommandFailed(f"the run didn't end within {LEARN_LIMIT_S / 60:.0f} minutes")


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


def _check_packages() -> None:
    missing = [name for name in ("openai", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandFailed(f"the demo needs {', '.join(missing)}; run: {how_to_install('demo')}")


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
