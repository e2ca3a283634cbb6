"""The output of ``burnish init``: the plan, the changes made, and the next steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from burnish.parts.connect import AGENTS, Home, Place
from burnish.parts.desktop.init.background import ServiceStart
from burnish.parts.desktop.init.carrying_out import Background
from burnish.parts.desktop.init.plan import SetupPlan
from burnish.proxy.plain import plain
from burnish.terminal.terminal import console

ADVICE = """\
Rate both good and bad answers, and say in words what is wrong:
  in a chat     [cyan]/rl good[/]   [cyan]/rl bad too long[/]
  in a shell    [cyan]burnish good[/]   [cyan]burnish bad "too long"[/]
Words teach the most."""


def show_plan(plan: SetupPlan, step: Background | None, file: Path, home: Home) -> None:
    if not (plan.changes_anything or step):
        console.print("\nEverything is already set up like this: nothing to change.")
        return
    console.print("\n[bold]This changes:[/]")
    for part in plan.parts:
        for change in part.planned:
            if not change.changes:
                continue
            path = Path(change.record.path)
            console.print(
                f"  {'create' if change.text is None else 'change'}  {escape(short_path(path, home))}",
                soft_wrap=True,
            )
            if path == file:
                for name, old, new in plan.settings:
                    console.print(f"          [dim]{escape(_setting(name, old, new))}[/]", soft_wrap=True)
    for name in plan.dropped:
        console.print(f"  undo    the settings of {AGENTS[name].title}")
    if isinstance(step, ServiceStart):
        again = "  restart burnish, which runs in the background, with the new settings"
        console.print(
            "  start   burnish as a service, now and at each login" if plan.installs_service else again
        )
    elif step:
        console.print("  stop    burnish, and remove the service")


def _setting(name: str, old: Any, new: Any) -> str:
    if new is None:
        return f"{name} is removed (was {plain(str(old))})"
    return f"{name} = {plain(str(new))}" + (f" (was {plain(str(old))})" if old is not None else "")


def short_path(path: Path, home: Home) -> str:
    """Return a path with ~ for the home directory."""
    return f"~/{path.relative_to(home.path)}" if path.is_relative_to(home.path) else str(path)


def show_result(plan: SetupPlan, place: Place) -> None:
    console.print(f"\n[bold]burnish is set up[/] for [bold cyan]{escape(place.url)}[/]", soft_wrap=True)
    for name in plan.answers.agents:
        console.print(
            f"  {AGENTS[name].title}: to rate, type [cyan]{escape(AGENTS[name].rating)}[/]", soft_wrap=True
        )
        if steps := AGENTS[name].by_hand(place):
            console.print(escape(steps), soft_wrap=True)
    console.print(
        f"  other programs: URL [cyan]{escape(place.api)}[/], model [cyan]default[/]", soft_wrap=True
    )


def show_unconnected(names: Sequence[str]) -> None:
    if names:
        console.print(
            f"[yellow]{', '.join(names)}: installed, but not connected, because coding agents send more than the "
            "embedded engine reads.[/] To connect anyway: [cyan]burnish init --agents found[/]",
            soft_wrap=True,
        )


def show_how_it_runs(plan: SetupPlan, step: Background | None, missing: str, *, running: bool) -> None:
    if isinstance(step, ServiceStart) and step.installed:
        for note in step.installed.notes:
            console.print(escape(note), soft_wrap=True)
    if plan.answers.service:
        console.print("burnish runs in the background: [cyan]burnish service status[/]")
        return
    if missing:
        console.print(f"[yellow]{escape(missing)}[/]", soft_wrap=True)
    if not running:
        console.print("burnish doesn't run yet. Start it with: [cyan]burnish up[/]")
    elif plan.settings:
        console.print(
            "[yellow]burnish is running with the old settings: stop it, and start it with burnish up[/]"
        )
