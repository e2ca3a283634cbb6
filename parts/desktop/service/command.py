"""``burnish service``: burnish starts at login, and again after a crash."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.parts.desktop.service import ServiceState, this_machines
from burnish.parts.desktop.service.base import running_version
from burnish.proxy.http.errors import ConfigError
from burnish.terminal.client import read_settings
from burnish.terminal.errors import CommandFailed, NotRunning, WrongUsage
from burnish.terminal.options import (
    ConfigFile,
    Context,
    DataDir,
    Engine,
    EngineArgs,
    EnginePython,
    Host,
    Model,
    NoTrain,
    Parallel,
    Removed,
    Upstream,
)
from burnish.terminal.terminal import Json, console, printed_json

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Lines = Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines to print.")]


@app.command()
def install(
    host: Host = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on [8787].")] = None,
    upstream: Upstream = None,
    model: Model = None,
    context: Context = None,
    parallel: Parallel = None,
    engine: Engine = None,
    engine_python: EnginePython = None,
    engine_args: EngineArgs = None,
    workers: Removed = None,
    data_dir: DataDir = None,
    no_train: NoTrain = False,
    config: ConfigFile = None,
    force: Annotated[
        bool, typer.Option("--force", help="If another service has the name burnish, put its files aside.")
    ] = False,
) -> None:
    """Install the service and start it; it starts at login from then on.

    It runs `burnish up` with the options given here, and reads the configuration file. Run it again to change
    options.
    """
    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "upstream": upstream,
        "model": model,
        "context": context,
        "parallel": parallel,
        "engine": engine,
        "engine_python": engine_python,
        "engine_args": engine_args,
        "data_dir": data_dir,
        "train": {"enabled": False} if no_train else None,
    }
    options = {name: option for name, option in flags.items() if option is not None}
    service = this_machines()
    console.print("[dim]starting burnish …[/]")
    try:
        installation = service.install(options, config, force=force)
    except ConfigError as error:
        raise WrongUsage(str(error)) from error
    what = (
        "burnish is a service now"
        if installation.has_changes
        else "burnish is a service already, with these options"
    )
    console.print(f"{what}: it answers at [bold cyan]{installation.url}[/]", soft_wrap=True)
    for path in installation.files if installation.has_changes else ():
        console.print(f"  {escape(str(path))}", soft_wrap=True)
    _say(installation.notes)


@app.command()
def uninstall() -> None:
    """Stop the service and remove its files. The data directory stays."""
    notes = this_machines().uninstall()
    if notes is None:
        console.print("burnish isn't installed as a service")
        return
    console.print("burnish is no service any more; its data stays")
    _say(notes)


@app.command()
def status(as_json: Json = False) -> None:
    """Show whether the service is installed and runs, and if not, why. Exits 3 if it doesn't run."""
    service = this_machines()
    state = service.state()
    if state.running and state.url:
        state = replace(state, version=running_version(state.url))
    if not printed_json(asdict(state), as_json):
        _show(state)
    if not state.running:
        raise typer.Exit(NotRunning.exit_code)


@app.command()
def logs(
    lines: Lines = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they come.")] = False,
) -> None:
    """Print what the service has printed."""
    service = this_machines()
    flags, file = service.settings()
    log = read_settings(flags, file=file).program_log
    line = service.output(lines, follow=follow)
    if not line and log.exists():
        line = ["tail", f"-n{lines}", *(["-F"] if follow else []), str(log)]
    if not service.state().installed:
        console.print("[yellow]burnish isn't installed as a service; what it logged last:[/]")
    if not line:
        raise CommandFailed(f"there is no log: neither {service.name} nor {log} has one")
    subprocess.run(line, check=False)


def _show(state: ServiceState) -> None:
    if not state.installed:
        console.print("burnish isn't installed as a service: [cyan]burnish service install[/]")
        return
    if state.running:
        version = f"burnish {state.version}" if state.version else "burnish"
        answers = "" if state.version is None else f" and answers at [cyan]{state.url}[/]"
        console.print(f"{version} runs (process {state.pid}, since {state.since}){answers}", soft_wrap=True)
        if state.version is None:
            console.print(f"[yellow]it doesn't answer at {state.url} yet: burnish service logs[/]")
    elif state.trouble:
        console.print(f"[red]burnish isn't running:[/] {escape(state.trouble)}", soft_wrap=True)
        console.print("once it's mended: [cyan]burnish service install[/]")
    else:
        console.print("burnish was stopped; to start it: [cyan]burnish service install[/]")
    console.print(
        "it starts when you log in" if state.at_login else "[yellow]it doesn't start when you log in[/]"
    )


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        console.print(escape(note), soft_wrap=True)
