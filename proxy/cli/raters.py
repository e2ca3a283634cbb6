"""``burnish raters``."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from burnish.proxy.cli.client import Proxy
from burnish.proxy.cli.terminal import Json, Url, console, print_json


def raters(url: Url = None, as_json: Json = False) -> None:
    """A rater who agrees with the others no more often than chance rates by other standards. Set `train.rater_weights`
    to give each rater more or less weight.
    """
    found = Proxy(url).get("/burnish/raters")
    if as_json:
        print_json(found)
        return
    if not found["data"]:
        console.print("[dim]no answers are rated yet[/]")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("rater", "rated", "good", "bad", "weight"):
        table.add_column(name, justify="left" if name == "rater" else "right")
    table.add_column("agrees with the others", justify="right")
    for each in found["data"]:
        table.add_row(
            f"[bold]{escape(each['name'])}[/]",
            str(each["good"] + each["bad"]),
            f"[green]{each['good']}[/]",
            f"[red]{each['bad']}[/]",
            f"{each['weight']:g}",
            _agreement(each),
        )
    console.print(table)


def _agreement(rater: dict[str, Any]) -> str:
    if not rater["compared"]:
        return "[dim]no other ratings of these answers[/]"
    return f"{rater['agreed']} of {rater['compared']} [dim]({rater['by_chance']:.1f} by chance)[/]"
