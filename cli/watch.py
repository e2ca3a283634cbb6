"""``burnish watch``, and how a run is shown while it goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.proxy.plain import escaped
from burnish.terminal.client import Proxy
from burnish.terminal.errors import CommandFailed, Interrupted
from burnish.terminal.terminal import Url, console, ctrl_c, printed_json

POLL_S = 0.5
FAILED = frozenset({"failed", "interrupted"})
MINUTE_S = 60
# Below it, an estimate is shown to the second.
PRECISE_S = 90

Run = dict[str, Any]
Show = Callable[[Run], None]


def watch(
    wait: Annotated[
        bool, typer.Option("--wait", help="If no run is under way, wait for the next one.")
    ] = False,
    url: Url = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a line of JSON for each change, the last one with the result."),
    ] = False,
) -> None:
    """Ctrl-C leaves; the run continues. Without a terminal, each phase is a line."""
    proxy = Proxy(url)
    learner = proxy.get("/burnish/status")["learner"]
    under_way = learner.get("run")
    if under_way:
        run_id = under_way["id"]
    elif wait and learner["state"] != "off":
        run_id = _next(proxy, as_json)
    else:
        _print_idle(proxy, learner, as_json)
        if wait:
            raise CommandFailed("no run will start, so there is nothing to wait for")
        return
    if as_json:
        _demand_verdict(_to_end(proxy, run_id, nullcontext(_line_per_change())))
    else:
        follow(proxy, run_id, as_json=False)


def follow(proxy: Proxy, run_id: str, *, as_json: bool) -> Run:
    """Show how far a run is until it has ended, and how it ended; as JSON only its record at the end.

    Raises Interrupted, and CommandFailed if it ended without a verdict.
    """
    lines = nullcontext(_ignored if as_json else _line_per_phase())
    run = _to_end(proxy, run_id, _bar() if console.is_terminal and not as_json else lines)
    if not printed_json(run, as_json) and run["status"] not in FAILED:
        what = "a candidate" if run["status"] == "candidate" else run["status"]
        console.print(f"[bold]v{run['version']} is {what}[/]: {escape(run['reason'])}", soft_wrap=True)
    _demand_verdict(run)
    return run


def _demand_verdict(run: Run) -> None:
    if run["status"] in FAILED:
        raise CommandFailed(f"the run {_ended(run)}")


def described(run: Run) -> str:
    """Return the phase of a run with its counter, its latest step and how long it still takes."""
    return " · ".join(filter(None, (_phase(run), _of_all(run), _step(run), _eta(run))))


def phase_of(run: Run) -> tuple[str, int | None, int]:
    """Return the phase of a run, how much it has to do (None: unknown), and how much of it is done."""
    progress = run["progress"] or {"phase": "planning", "total": None, "done": 0}
    return progress["phase"], progress["total"], progress["done"]


def _to_end(proxy: Proxy, run_id: str, display: AbstractContextManager[Show]) -> Run:
    """Show the record of a run again and again until it has ended. Raises Interrupted, CommandFailed."""
    try:
        with ctrl_c() as pressed, display as show:
            while True:
                run: Run = proxy.get(f"/burnish/runs/{run_id}")
                show(run)
                if run["ended_at"]:
                    return run
                pressed.check()
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        raise Interrupted(f"{run_id} continues in the background. To watch it: burnish watch") from None


# -- on a terminal, in a pipe, as JSON ---------------------------------------------------------------------------------


@contextmanager
def _bar() -> Iterator[Show]:
    """Yield a function that shows a run as a bar; each phase that is over stays as a line."""
    # `status` starts without it.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    over = _line_per_phase()
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("planning", total=None, note="")

        def show(run: Run) -> None:
            over(run)
            phase, total, count = phase_of(run)
            loss = f"loss {run['step']['loss']:+.3f}" if _step(run) else ""
            note = "  ".join(filter(None, (_of_all(run), loss, _eta(run))))
            bars.update(bar, description=phase, total=total, completed=count, note=note)

        yield show


def _line_per_phase() -> Show:
    """Return a function that prints a line when a phase begins."""
    last_phase = ""

    def show(run: Run) -> None:
        nonlocal last_phase
        progress = run["progress"]
        if run["ended_at"] or not progress or progress["phase"] == last_phase:
            return
        last_phase = progress["phase"]
        moment = datetime.fromtimestamp(progress["started_at"]).strftime("%H:%M:%S")
        console.print(f"[dim]{moment}[/] {escape(described(run))}")

    return show


def _line_per_change() -> Show:
    """Return a function that prints the record of a run, as JSON, when its progress has changed."""
    last_state: Any = None

    def show(run: Run) -> None:
        nonlocal last_state
        progress = run["progress"] or {}
        state = run["status"], progress.get("phase"), progress.get("done"), progress.get("total")
        if state != last_state:
            last_state = state
            _print_json_line(run)

    return show


def _ignored(run: Run) -> None:
    pass


def _print_json_line(content: Any) -> None:
    typer.echo(escaped(json.dumps(content, ensure_ascii=False)))


# -- when no run is under way ------------------------------------------------------------------------------------------


def _next(proxy: Proxy, as_json: bool) -> str:
    """Wait for a run and return its ID, even if it ends at once. Raises Interrupted, CommandFailed."""
    previous, last_reason = latest_run(proxy), ""
    try:
        with ctrl_c() as pressed:
            # One that was stopped goes on under its ID.
            while (latest := latest_run(proxy)) is None or (
                previous and latest["id"] == previous["id"] and latest["ended_at"]
            ):
                reason = proxy.get("/burnish/status")["learner"]["reason"]
                if reason != last_reason and not as_json:
                    console.print(f"[dim]no run is under way yet: {escape(reason)}[/]")
                last_reason = reason
                pressed.check()
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        raise Interrupted("no longer waiting for a run") from None
    return str(latest["id"])


def _print_idle(proxy: Proxy, learner: dict[str, Any], as_json: bool) -> None:
    latest = latest_run(proxy) if "run" in learner else None  # else versions can't be swapped here
    if as_json:
        _print_json_line({"run": None, "reason": learner["reason"], "latest": latest})
        return
    console.print(f"no run is under way: {escape(learner['reason'])}")
    if latest:
        console.print(f"[dim]the last run {escape(_ended(latest))}[/]")


def latest_run(proxy: Proxy) -> Run | None:
    runs: list[Run] = proxy.get("/burnish/runs", limit=1)["runs"]
    return runs[0] if runs else None


# -- words -------------------------------------------------------------------------------------------------------------


def _phase(run: Run) -> str:
    phase, total, count = phase_of(run)
    return phase if total is None else f"{phase} {count}/{total}"


def _of_all(run: Run) -> str:
    progress = run["progress"]
    return f"step {progress['step']} of {progress['steps']}" if progress else ""


def _step(run: Run) -> str:
    step = run["step"]
    if not step or (run["progress"] or {}).get("phase") != "training":
        return ""
    return f"epoch {step['epoch']}/{step['epochs']}, loss {step['loss']:+.3f}, KL {step['kl_per_token']:.3f}"


def _eta(run: Run) -> str:
    progress = run["progress"] or {}
    phase, whole = progress.get("eta_s"), progress.get("run_eta_s")
    of_phase = f"{about(phase)} left in it" if phase is not None else ""
    of_run = f"{about(whole)} left in all" if whole is not None else ""
    guess = "a guess for a first run" if progress.get("guessed") else ""
    return ", ".join(filter(None, (of_phase, of_run, guess)))


def about(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < PRECISE_S else f"about {seconds / MINUTE_S:.0f} min"


def _ended(run: Run) -> str:
    if run["status"] == "interrupted":
        return f"was {run['reason']}"  # "stopped at step 2 of 36; goes on"
    version = f"v{run['version']}, " if run["version"] else ""
    return f"ended as: {version}{run['status']}: {run['reason']}"
