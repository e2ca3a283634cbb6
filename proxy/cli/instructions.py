"""``burnish instructions``: what you asked for before, as it stands in the system prompt, and changing that."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.proxy.cli.client import Proxy, in_path
from burnish.proxy.cli.terminal import Json, Url, console, print_json

app = typer.Typer(invoke_without_command=True, add_completion=False, rich_markup_mode=None)

Id = Annotated[str, typer.Argument(metavar="ID", help="An instruction's id.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="What you instruction, in 200 characters.")]

PATH = "/burnish/instructions"
STATES = {
    "active": "",
    "learnt": "[dim]– learnt by the live version, no longer added[/]",
    "displaced": "[dim]– not added, there are enough newer ones[/]",
}


@app.callback()
def list_(context: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """List your instructions: what you said of answers that were not good, and what you added."""
    if context.invoked_subcommand:
        return
    found = Proxy(url).get(PATH)
    if as_json:
        print_json(found)
        return
    if not found["instructions"]:
        console.print("[yellow]instructions is off: nothing is added to any prompt[/]")
        console.print(
            "[dim]instructions = true in the configuration, or BURNISH_INSTRUCTIONS=true, switches it on[/]"
        )
    for each in found["data"]:
        console.print(f"[bold]{each['id']}[/]  {_text(each)}  {STATES[each['state']]}", soft_wrap=True)
    if not found["data"]:
        console.print(
            '[dim]no instructions yet: say what was wrong with an answer, e.g. burnish bad "too long"[/]'
        )


@app.command()
def add(text: Text, url: Url = None, as_json: Json = False) -> None:
    """Add an instruction; it stays until you remove it."""
    _done("added", Proxy(url).post(PATH, {"text": text}), as_json)


@app.command()
def edit(instruction: Id, text: Text, url: Url = None, as_json: Json = False) -> None:
    """Say an instruction in other words."""
    _done("changed", Proxy(url).patch(f"{PATH}/{in_path(instruction)}", {"text": text}), as_json)


@app.command()
def remove(instruction: Id, url: Url = None, as_json: Json = False) -> None:
    """Remove an instruction for good, however often its comment is repeated; `add` brings it back."""
    _done("removed", Proxy(url).delete(f"{PATH}/{in_path(instruction)}"), as_json)


def _done(what: str, instruction: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(instruction)
    else:
        console.print(f"{what}: [bold]{instruction['id']}[/]  {escape(instruction['text'])}", soft_wrap=True)


def _text(instruction: dict[str, Any]) -> str:
    said = instruction["comment"]
    was = f" [dim](you said: {escape(said)})[/]" if said and said != instruction["text"] else ""
    return escape(instruction["text"]) + was
