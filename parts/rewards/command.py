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
LEARNING_NOTE = "learning from all ratings; where the base model reads the answers, about a second for each …"


@app.command()
def train(url: Url = None, as_json: Json = False) -> None:
    """Learn a reward model from all ratings, and turn it on if it orders unseen ratings well enough."""
    proxy = Proxy(url)
    model = proxy.post(f"{PATH}/train", {})
    with console.status(LEARNING_NOTE if not as_json else ""):
        while model["learning"]:
            time.sleep(LOOK_S)
            model = proxy.get(PATH)
    _print(model, as_json)
    if model["fault"]:
        raise CommandFailed(model["fault"])


@app.command()
def show(url: Url = None, as_json: Json = False) -> None:
    """Show the reward model: its form, how well it orders unseen ratings, what it learnt from, and whether it is on."""
    model = Proxy(url).get(PATH)
    _print(model, as_json)
    if model["fault"] and not as_json:
        console.print(f"[red]{escape(model['fault'])}[/]")


@app.command()
def on(url: Url = None, as_json: Json = False) -> None:
    """Turn the reward model on: each new answer gets a reward, and requests may ask for the best of several answers."""
    _print(Proxy(url).post(f"{PATH}/on", {}), as_json)


@app.command()
def off(url: Url = None, as_json: Json = False) -> None:
    """Turn the reward model off. Rewards that were given stay in the history."""
    _print(Proxy(url).post(f"{PATH}/off", {}), as_json)


def _print(model: dict[str, Any], as_json: bool) -> None:
    if printed_json(model, as_json):
        return
    if model["learning"]:
        console.print("a reward model is being learnt")
    if model["id"] is None:
        if not model["fault"]:
            console.print(escape(model["reason"]))
        return
    if model["forms"] is None:
        if model["on"]:
            console.print(f"[bold]{escape(model['id'])}[/]  [green]on[/], as the configuration says")
            console.print(_scored(model))
        return
    state = f"[green]on[/] since {clock(model['on_since'])}" if model["on"] else "[yellow]off[/]"
    console.print(f"[bold]{model['id']}[/]  {state}  learnt {clock(model['made_at'])}")
    if model["reason"]:
        console.print(escape(model["reason"]))
    counts = model["learnt_from"]
    ratings = ", ".join(_counts(counts))
    console.print(
        f"learnt from {ratings} in {counts['conversations']} conversations: {escape(model['objective'])}"
    )
    for reason, count in counts["left_out"].items():
        console.print(f"[dim]left out: {count} × {escape(reason)}[/]")
    console.print(_table(model["forms"]))
    if model["on"]:
        console.print(_scored(model))


def _scored(model: dict[str, Any]) -> str:
    unscored = f", {model['unscored']} couldn't be scored" if model["unscored"] else ""
    return f"scored since burnish started: {model['scored']} answers{unscored}"


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
    for form in forms:
        has_order = form["order"] is not None
        share = f"{form['order']:.0%}" if has_order else "–"
        interval = f"{form['lower']:.0%} to {form['upper']:.0%}" if has_order else ""
        notes = ["used"] if form["chosen"] else []
        notes += [form["reason"]] if form["reason"] else []
        table.add_row(form["name"], share, interval, escape("; ".join(notes)))
    return table
