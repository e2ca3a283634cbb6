"""The program ``burnish``: its commands, its exit codes, and how it fails."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import burnish
from burnish.adapters.errors import AdapterError
from burnish.proxy.cli import (
    adapters,
    bench,
    chat,
    connect,
    demo,
    doctor,
    hook,
    instructions,
    keep,
    rate,
    raters,
    show,
    train,
    up,
)
from burnish.proxy.cli.errors import CommandFailed
from burnish.proxy.errors import BurnishError

EPILOG = (
    "Exit codes: 0 it worked · 1 it did not · 2 wrong usage or a wrong value · 3 burnish is not running · "
    "130 interrupted.   Commands find burnish by --url, BURNISH_URL, or its data directory."
)

app = typer.Typer(
    name="burnish",
    help="An OpenAI-compatible proxy that learns from your ratings.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"burnish {burnish.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """An OpenAI-compatible proxy that learns from your ratings."""


app.command("up")(up.up)
app.command("connect")(connect.connect)
app.command("disconnect")(connect.disconnect)
app.command("hook", hidden=True)(hook.hook)
app.command("chat")(chat.chat)
app.command("good")(rate.good)
app.command("bad")(rate.bad)
# A rating such as -0.5 is no option.
app.command("rate", context_settings={"ignore_unknown_options": True})(rate.rate)
app.command("undo")(rate.undo)
app.command("status")(show.status)
app.command("history")(show.history)
app.command("regenerations")(show.regenerations)
app.command("raters")(raters.raters)
app.command("train")(train.train)
app.command("pause")(train.pause)
app.command("resume")(train.resume)
app.add_typer(adapters.app, name="adapters")
app.add_typer(instructions.app, name="instructions")
app.command("backup")(keep.backup)
app.command("export")(keep.export)
app.command("forget")(keep.forget)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Run the program; every expected failure is one sentence on stderr and an exit code."""
    try:
        app(prog_name="burnish")
    except CommandFailed as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except (BurnishError, AdapterError) as error:
        _say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Without this, Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _say(message: str) -> None:
    Console(stderr=True, soft_wrap=True, emoji=False).print(
        f"[bold red]burnish:[/] {escape(message)}", highlight=False
    )
