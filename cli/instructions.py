"""``burnish instructions``: list and change the instructions in the system prompt."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.terminal.client import Proxy, in_path
from burnish.terminal.terminal import Json, Url, console, printed_json

app = typer.Typer(invoke_without_command=True, add_completion=False, rich_markup_mode=None)

Id = Annotated[str, typer.Argument(metavar="ID", help="ID of the instruction.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="The instruction, 200 characters at most.")]

PATH = "/burnish/instructions"
STATES = {
    "active": "",
    "learnt": "[dim]– learnt by the live version, so no longer added[/]",
    "displaced": "[dim]– not added, because there are enough newer ones[/]",
}


@app.callback()
def list_(context: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """List your instructions: your comments on bad answers, and the ones that you added."""
    if context.invoked_subcommand:
        return
    page = Proxy(url).get(PATH)
    if printed_json(page, as_json):
        return
    if not page["instructions"]:
        console.print("[yellow]instructions are off: nothing is added to the system prompt[/]")
        console.print(
            "[dim]to turn them on, set instructions = true in the configuration, or BURNISH_INSTRUCTIONS=true[/]"
        )
    for instruction in page["data"]:
        console.print(
            f"[bold]{instruction['id']}[/]  {_text(instruction)}  {STATES[instruction['state']]}",
            soft_wrap=True,
        )
    if not page["data"]:
        console.print(
            '[dim]no instructions yet: tell burnish what was wrong with an answer, e.g. burnish bad "too long"[/]'
        )


@app.command()
def add(text: Text, url: Url = None, as_json: Json = False) -> None:
    """Add an instruction. It stays until you remove it."""
    _done("added", Proxy(url).post(PATH, {"text": text}), as_json)


@app.command()
def edit(instruction: Id, text: Text, url: Url = None, as_json: Json = False) -> None:
    """Change the text of an instruction."""
    _done("changed", Proxy(url).patch(f"{PATH}/{in_path(instruction)}", {"text": text}), as_json)


@app.command()
def remove(instruction: Id, url: Url = None, as_json: Json = False) -> None:
    """Remove an instruction for good, even if its comment is repeated. `add` brings it back."""
    _done("removed", Proxy(url).delete(f"{PATH}/{in_path(instruction)}"), as_json)


def _done(what: str, instruction: dict[str, Any], as_json: bool) -> None:
    if not printed_json(instruction, as_json):
        console.print(f"{what}: [bold]{instruction['id']}[/]  {escape(instruction['text'])}", soft_wrap=True)


def _text(instruction: dict[str, Any]) -> str:
    comment = instruction["comment"]
    changed = comment and comment != instruction["text"]
    original = f" [dim](your comment: {escape(comment)})[/]" if changed else ""
    return escape(instruction["text"]) + original
