"""``burnish train``."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.proxy.cli.client import Proxy
from burnish.proxy.cli.errors import CommandFailed, Interrupted
from burnish.proxy.cli.terminal import Json, Url, console, ctrl_c, printed_json, version_name

POLL_S = 0.5
FAILED = frozenset({"failed", "interrupted"})


def train(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan without training.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end of the run and show a progress bar.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Train even if all ratings are the same.")] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Train on all ratings again, starting from the base model.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    proxy, wanted = Proxy(url), {"force": force, "refresh": refresh}
    if dry_run:
        _dry_run(proxy, wanted, as_json)
        return
    started = proxy.post("/burnish/train", wanted)
    run_id = started["run_id"]
    if not as_json:
        for warning in started.get("warnings", ()):
            console.print(f"[yellow]training starts, but {escape(warning)}[/]")
    if not wait:
        if not printed_json(started, as_json):
            console.print(f"started {run_id}; follow it with [cyan]burnish status[/]")
        return
    try:
        run = follow(proxy, run_id, quiet=as_json)
    except KeyboardInterrupt:
        raise Interrupted(f"{run_id} continues in the background; see: burnish status") from None
    if not printed_json(run, as_json) and run["status"] not in FAILED:
        console.print(f"[bold]v{run['version']} is {run['status']}[/]: {escape(run['reason'])}")
        for line in _ratings_used(run["result"]):
            console.print(escape(line))
    if run["status"] in FAILED:
        raise CommandFailed(f"the run {run['status']}: {run['reason']}")


def pause(url: Url = None) -> None:
    Proxy(url).post("/burnish/pause", {})
    console.print("paused; to continue: [cyan]burnish resume[/]")


def resume(url: Url = None) -> None:
    console.print(f"resumed: {escape(Proxy(url).post('/burnish/resume', {})['reason'])}")


def follow(proxy: Proxy, run_id: str, *, quiet: bool = False) -> dict[str, Any]:
    """Show the progress of a run until it ends; return its record."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # `status` starts without it

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with (
        ctrl_c() as pressed,
        Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bars,
    ):
        bar = bars.add_task("starting", total=None, note="")
        while True:
            if pressed.is_set():
                raise KeyboardInterrupt
            run = _run(proxy, run_id)
            if run and run["ended_at"]:
                return run
            if run:
                step = run["progress"] or {}
                training = run["status"] == "training" and step
                bars.update(
                    bar,
                    description=run["status"],
                    total=step["steps"] if training else None,
                    completed=step["step"] if training else 0,
                    note=f"loss {step['loss']:+.3f}  KL {step['kl_per_token']:.3f}" if training else "",
                )
            time.sleep(POLL_S)


def _run(proxy: Proxy, run_id: str) -> dict[str, Any] | None:
    """Return the run; None if it hasn't started yet."""
    found: list[dict[str, Any]] = proxy.get("/burnish/runs", limit=10)["runs"]
    return next((run for run in found if run["id"] == run_id), None)


def _dry_run(proxy: Proxy, wanted: dict[str, bool], as_json: bool) -> None:
    plan = proxy.post("/burnish/train", wanted | {"dry_run": True})
    if printed_json(plan, as_json):
        return
    would = "[green]would train[/]" if plan["would_train"] else "[red]would not train[/]"
    on = plan["trains_on"]
    console.print(f"{would}: {escape(plan['why'])}")
    console.print(f"automatic training: {escape(plan['by_itself'])}")
    console.print(
        f"train on {on['good']} good and {on['bad']} bad ratings{_replayed(plan)}, test on {plan['held_out']} more, "
        f"objective {plan['objective']}, starting from {version_name(plan['parent'] or 0)}"
    )
    for line in (plan["note"], left_out(plan)):
        if line:
            console.print(escape(line))


def left_out(counts: dict[str, Any]) -> str | None:
    """List how many ratings training leaves out, and why; None if it uses all."""
    reasons = [f"{count} × {why}" for why, count in counts["left_out"].items()]
    return f"left out: {'; '.join(reasons)}" if reasons else None


def _replayed(counts: dict[str, Any]) -> str:
    return f" and {counts['replayed']} older ones again" if counts["replayed"] else ""


def _ratings_used(result: dict[str, Any] | None) -> list[str]:
    """Describe the ratings that a run used, if its job still exists."""
    if result is None:
        return []
    new = f"trained on {result['ratings'] - result['replayed']} new ratings{_replayed(result)}"
    return [new, *filter(None, (left_out(result),))]
