"""``burnish reset``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.adapters.manifest import BASE_VERSION
from burnish.terminal.client import Proxy
from burnish.terminal.errors import Interrupted, WrongUsage
from burnish.terminal.terminal import Json, Url, console, printed_json, version_name


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
    count = (
        "1 rating no longer counts"
        if report["ratings"] == 1
        else f"{report['ratings']} ratings no longer count"
    )
    console.print(f"{count}; the answers are still in the log")
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
