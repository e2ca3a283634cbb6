"""``burnish train``, ``pause``, ``resume`` and ``reset``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.adapters.manifest import BASE_VERSION
from burnish.cli.watch import about, follow
from burnish.terminal.client import Proxy
from burnish.terminal.errors import CommandFailed, Interrupted, WrongUsage
from burnish.terminal.terminal import Json, Url, console, errors, printed_json, version_name


def train(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan without training.")] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait for the end of the run, or of the one under way, and show how far it is."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Train even if all ratings are the same.")] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Train on all ratings again, starting from the base model.")
    ] = False,
    rlhf: Annotated[
        bool,
        typer.Option(
            "--rlhf",
            help="Imitate demonstrations, learn a reward model from the ratings, then train against it.",
        ),
    ] = False,
    rollouts: Annotated[
        str | None,
        typer.Option(
            metavar="TASK", help="Learn from the rewards of this task's rollouts, and not from ratings."
        ),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(metavar="NAME", help="For this run, instead of train.objective.")
    ] = None,
    judge: Annotated[
        bool, typer.Option(help="Judge the version; otherwise it stays a candidate that nobody has judged.")
    ] = True,
    url: Url = None,
    as_json: Json = False,
) -> None:
    choices = {"rollouts": rollouts, "objective": objective}
    request = {"force": force, "refresh": refresh, "rlhf": rlhf, "judge": judge} | {
        name: choice for name, choice in choices.items() if choice is not None
    }
    proxy = Proxy(url)
    if dry_run:
        _dry_run(proxy, request, as_json)
        return
    started = _started(proxy, request, attach=wait and not (refresh or rlhf or any(choices.values())))
    run_id = started["run_id"]
    if not as_json:
        for warning in started.get("warnings", ()):
            console.print(f"[yellow]training starts, but {escape(warning)}[/]")
    if not wait:
        if not printed_json(started, as_json):
            console.print(f"started {run_id}; to watch it: [cyan]burnish watch[/]")
        return
    run = follow(proxy, run_id, as_json=as_json)
    for line in [] if as_json else _ratings_used(run["result"]):
        console.print(escape(line))


def _started(proxy: Proxy, request: dict[str, Any], *, attach: bool) -> dict[str, Any]:
    """Start a run; with ``attach``, one that is under way will do. Raises CommandFailed."""
    try:
        return dict(proxy.post("/burnish/train", request))
    except CommandFailed:
        if not (attach and (run := proxy.get("/burnish/status")["learner"].get("run"))):
            raise
    errors.print(f"{run['id']} is under way already, so no other run was started. This is how it goes on:")
    return {"run_id": run["id"]}


def pause(url: Url = None) -> None:
    Proxy(url).post("/burnish/pause", {})
    console.print("paused; to continue: [cyan]burnish resume[/]")


def resume(url: Url = None) -> None:
    console.print(f"resumed: {escape(Proxy(url).post('/burnish/resume', {})['reason'])}")


def _dry_run(proxy: Proxy, request: dict[str, Any], as_json: bool) -> None:
    plan = proxy.post("/burnish/train", request | {"dry_run": True})
    if printed_json(plan, as_json):
        return
    would = "[green]would train[/]" if plan["would_train"] else "[red]would not train[/]"
    on = plan["trains_on"]
    console.print(f"{would}: {escape(plan['why'])}")
    console.print(f"automatic training: {escape(plan['by_itself'])}")
    comments = f", {plan['comments']} with a comment" if plan["comments"] else ""
    basis = f"{on['good']} good and {on['bad']} bad ratings{comments}{_replayed(plan)}, test on {plan['held_out']} more"
    if plan["episodes"]:
        basis = f"{plan['episodes']} rollouts"
    start = version_name(plan["parent"] or 0)
    console.print(f"train on {basis}, objective {plan['objective']}, starting from {start}")
    count = plan.get("compared")
    later = f"when it starts, {count} prompts are compared with what the engine read" if count else None
    for line in (plan["note"], left_out(plan), later, _estimate(plan)):
        if line:
            console.print(escape(line))


def _estimate(plan: dict[str, Any]) -> str | None:
    estimate = plan.get("estimate") or {}
    if estimate.get("seconds") is None:
        return None
    longest = estimate["longest_prompt"]
    prompts = f"; the longest prompt has {longest:,} tokens" if longest else ""
    return f"it takes {about(estimate['seconds'])}, by {estimate['by']}{prompts}"


def left_out(counts: dict[str, Any]) -> str | None:
    """List how many ratings training leaves out, and why; None if it uses all."""
    reasons = [f"{count} × {why}" for why, count in counts["left_out"].items()]
    return f"left out: {'; '.join(reasons)}" if reasons else None


def prompts_compared(prompts: dict[str, Any] | None) -> str | None:
    """Say how many prompts of the latest run are those that the engine read; None if it compared none."""
    if not prompts or not sum(prompts[name] for name in ("same", "different", "unchecked")):
        return None
    parts = [f"{prompts['same']} prompts are those that the engine read"]
    if prompts["different"]:
        parts.append(f"{prompts['different']} aren't, and weren't taught")
    if prompts["unchecked"]:
        parts.append(f"{prompts['unchecked']} are unchecked, because it told no count")
    parts += [f"it counts {offset:+} tokens in {name}" for name, offset in prompts["offsets"].items()]
    return "; ".join(parts)


def _replayed(counts: dict[str, Any]) -> str:
    return f" and {counts['replayed']} older ones again" if counts["replayed"] else ""


def _ratings_used(outcome: dict[str, Any] | None) -> list[str]:
    if outcome is None:
        return []
    new = f"trained on {outcome['ratings'] - outcome['replayed']} new ratings{_replayed(outcome)}"
    if outcome["episodes"]:
        new = f"trained on {outcome['episodes']} rollouts, mean reward {outcome['reward']:.3f}"
    return [new, *filter(None, (left_out(outcome),))]


def reset(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask first.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Makes the base model live, unloads what was learnt, and takes back all ratings.

    The log is copied first. The answers in it stay, and so do the versions on the disk.
    """
    proxy = Proxy(url)
    status = proxy.get("/burnish/status")
    if not yes:
        _ask(status)
    report = proxy.post("/burnish/reset", {})
    if printed_json(report, as_json):
        return
    console.print(f"copied the log to [cyan]{escape(report['backup'])}[/]", soft_wrap=True)
    if report["run"]:
        console.print(f"ended {report['run']}, the training run that was under way")
    console.print("the base model is live" + _unloaded(report))
    count = report["ratings"]
    words = "1 rating no longer counts" if count == 1 else f"{count} ratings no longer count"
    console.print(f"{words}; the answers are still in the log")
    if replaced := report["replaced"]:
        console.print(
            f"to go back: [cyan]burnish adapters rollback {replaced}[/]; for the ratings, restore the copy"
        )


def _ask(status: dict[str, Any]) -> None:
    """Raises WrongUsage without a terminal, Interrupted if the user says no."""
    if not sys.stdin.isatty():
        raise WrongUsage(
            "reset asks first, but there is no terminal; nothing was changed. To go ahead: burnish reset --yes"
        )
    live, ratings = version_name(status["live"]["version"] or BASE_VERSION), status["counts"]["ratings"]
    console.print(f"{live} is live, and {ratings} answers are rated.")
    try:
        sure = typer.confirm("Go back to the base model, and take back all ratings?", default=False)
    except typer.Abort:
        sure = False
    if not sure:
        raise Interrupted("nothing was changed")


def _unloaded(report: dict[str, Any]) -> str:
    if still := report["loaded"]:
        names = ", ".join(map(version_name, still))
        return f"; {names} is unloaded as soon as its last request has ended"
    return f"; {version_name(report['replaced'])} was unloaded" if report["replaced"] else ", as before"
