"""``burnish reward``: learn a reward model from the ratings, see how good it is, turn it on and off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from burnish.terminal.client import Proxy
from burnish.terminal.errors import CommandFailed
from burnish.terminal.terminal import Json, Url, clock, console, printed_json

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

PATH = "/burnish/reward"
LOOK_S = 0.25
WAITING = "learning from all ratings; where the base model reads the answers, about a second for each …"


@app.command()
def train(url: Url = None, as_json: Json = False) -> None:
    """Learn a reward model from all ratings, and turn it on if it orders unseen ratings well enough."""
    proxy = Proxy(url)
    found = proxy.post(f"{PATH}/train", {})
    with console.status(WAITING if not as_json else ""):
        while found["learning"]:
            time.sleep(LOOK_S)
            found = proxy.get(PATH)
    _print(found, as_json)
    if found["fault"]:
        raise CommandFailed(found["fault"])


@app.command()
def show(url: Url = None, as_json: Json = False) -> None:
    """Show the reward model: its form, how well it orders unseen ratings, what it learnt from, and whether it is on."""
    found = Proxy(url).get(PATH)
    _print(found, as_json)
    if found["fault"] and not as_json:
        console.print(f"[red]{escape(found['fault'])}[/]")


@app.command()
def on(url: Url = None, as_json: Json = False) -> None:
    """Turn the reward model on: each new answer gets a reward, and requests may ask for the best of several answers."""
    _print(Proxy(url).post(f"{PATH}/on", {}), as_json)


@app.command()
def off(url: Url = None, as_json: Json = False) -> None:
    """Turn the reward model off. Rewards that were given stay in the history."""
    _print(Proxy(url).post(f"{PATH}/off", {}), as_json)


def _print(found: dict[str, Any], as_json: bool) -> None:
    if printed_json(found, as_json):
        return
    if found["learning"]:
        console.print("a reward model is being learnt")
    if found["id"] is None:
        if not found["fault"]:
            console.print(escape(found["reason"]))
        return
    if found["forms"] is None:
        if found["on"]:
            console.print(f"[bold]{escape(found['id'])}[/]  [green]on[/], as the configuration says")
            console.print(_scored(found))
        return
    state = f"[green]on[/] since {clock(found['on_since'])}" if found["on"] else "[yellow]off[/]"
    console.print(f"[bold]{found['id']}[/]  {state}  learnt {clock(found['made_at'])}")
    if found["reason"]:
        console.print(escape(found["reason"]))
    counts = found["learnt_from"]
    said = ", ".join(_counts(counts))
    console.print(
        f"learnt from {said} in {counts['conversations']} conversations: {escape(found['objective'])}"
    )
    for reason, count in counts["left_out"].items():
        console.print(f"[dim]left out: {count} × {escape(reason)}[/]")
    console.print(_table(found["forms"]))
    if found["on"]:
        console.print(_scored(found))


def _scored(found: dict[str, Any]) -> str:
    unscored = f", {found['unscored']} couldn't be scored" if found["unscored"] else ""
    return f"scored since burnish started: {found['scored']} answers{unscored}"


def _counts(counts: dict[str, Any]) -> Iterator[str]:
    for name, word in (("good", "good"), ("bad", "bad"), ("graded", "graded")):
        if counts[name]:
            yield f"{counts[name]} {word}"
    if counts["pairs"]:
        yield f"{counts['pairs']} preferred"


def _table(forms: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("form", "unseen in order", "90% interval", ""):
        table.add_column(name, justify="left" if name in ("form", "") else "right")
    for each in forms:
        known = each["order"] is not None
        share = f"{each['order']:.0%}" if known else "–"
        interval = f"{each['lower']:.0%} to {each['upper']:.0%}" if known else ""
        notes = ["used"] if each["chosen"] else []
        notes += [each["reason"]] if each["reason"] else []
        table.add_row(each["name"], share, interval, escape("; ".join(notes)))
    return table
