"""``burnish wishes``: what you asked for before, as it stands in the system prompt, and changing that."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.proxy.cli.client import Proxy, in_path
from burnish.proxy.cli.terminal import Json, Url, console, print_json

app = typer.Typer(
    help="List and change what you asked for before, which is added to the system prompt (instant = true).",
    invoke_without_command=True,
)

Id = Annotated[str, typer.Argument(metavar="ID", help="A wish's id.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="What you wish, in 200 characters.")]

PATH = "/burnish/wishes"
STATES = {
    "active": "",
    "learnt": "[dim]– learnt by the live version, no longer added[/]",
    "displaced": "[dim]– not added, there are enough newer ones[/]",
}


@app.callback()
def list_(context: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """List your wishes: what you said of answers that were not good, and what you added."""
    if context.invoked_subcommand:
        return
    found = Proxy(url).get(PATH)
    if as_json:
        print_json(found)
        return
    if not found["instant"]:
        console.print("[yellow]instant is off: nothing is added to any prompt[/]")
        console.print("[dim]instant = true in the configuration, or BURNISH_INSTANT=true, switches it on[/]")
    for each in found["data"]:
        console.print(f"[bold]{each['id']}[/]  {_text(each)}  {STATES[each['state']]}", soft_wrap=True)
    if not found["data"]:
        console.print('[dim]no wishes yet: say what was wrong with an answer, e.g. burnish bad "too long"[/]')


@app.command()
def add(text: Text, url: Url = None, as_json: Json = False) -> None:
    """Add a wish; it stays until you remove it."""
    _done("added", Proxy(url).post(PATH, {"text": text}), as_json)


@app.command()
def edit(wish: Id, text: Text, url: Url = None, as_json: Json = False) -> None:
    """Say a wish in other words."""
    _done("changed", Proxy(url).patch(f"{PATH}/{in_path(wish)}", {"text": text}), as_json)


@app.command()
def remove(wish: Id, url: Url = None, as_json: Json = False) -> None:
    """Remove a wish for good, however often its comment is repeated; `add` brings it back."""
    _done("removed", Proxy(url).delete(f"{PATH}/{in_path(wish)}"), as_json)


def _done(what: str, wish: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(wish)
    else:
        console.print(f"{what}: [bold]{wish['id']}[/]  {escape(wish['text'])}", soft_wrap=True)


def _text(wish: dict[str, Any]) -> str:
    said = wish["comment"]
    was = f" [dim](you said: {escape(said)})[/]" if said and said != wish["text"] else ""
    return escape(wish["text"]) + was
