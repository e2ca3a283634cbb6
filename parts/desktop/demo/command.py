"""``burnish demo``: a simulated user says what it likes, burnish learns, and both are shown side by side."""

from __future__ import annotations

import importlib.util
import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import httpx
import typer

from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo import report
from burnish.parts.desktop.demo.halves import HALVES, Half, Name
from burnish.parts.desktop.demo.outcome import HELD_OUT, SAMPLES, TrialOutcome, record
from burnish.parts.desktop.demo.trial import NoLearner, run
from burnish.system.extras import how_to_install
from burnish.terminal.errors import CommandFailed, WrongUsage
from burnish.terminal.terminal import Json, console, printed_json


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
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        # As for Ctrl-C, everything that the demo has started ends.
        signal.signal(signal_number, lambda number, _: sys.exit(128 + number))
    import openai

    if not as_json:
        _announce(halves, len(numbers))
    outcomes, failures = [], []
    for part, seed in product(halves, numbers):
        try:
            outcome = run(part, seed, upstream=upstream, quiet=as_json)
            outcomes.append(outcome)
            if not outcome.live:
                failures.append(f"{part.name}, seed {seed}: nothing went live: {outcome.reason}")
        except NoLearner as error:
            failures.append(str(error))
            break
        except (CommandFailed, openai.OpenAIError, httpx.HTTPError) as error:
            failures.append(f"{part.name}, seed {seed}: {error}")
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
        console.print(f"[bold]{half.name}[/]: {half.title}")
    minutes = seeds * sum(half.minutes for half in halves)
    console.print(
        f"\nThis takes about {minutes} minutes with the small model on two idle cores. Ctrl-C stops it.\n"
    )


def _report(outcomes: list[TrialOutcome], out: Path, as_json: bool) -> None:
    content = [record(outcome) for outcome in outcomes]
    command = shlex.join(["burnish", *sys.argv[1:]])
    (out / "demo.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "demo.md").write_text(report.markdown(outcomes, command), encoding="utf-8")
    report.draw(outcomes, out / "demo.png")
    if printed_json(content, as_json):
        return
    report.show(outcomes)
    console.print(f"\n[dim]written: {out / 'demo.png'}, {out / 'demo.md'}, {out / 'demo.json'}[/]")


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
