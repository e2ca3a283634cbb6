"""``burnish up``."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.logging import RichHandler
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from burnish.adapters.hosts.detect import LM_STUDIO, NAMES
from burnish.adapters.hosts.hub_cache import cached
from burnish.adapters.hosts.hub_gguf import HubFile, endpoint, fetched
from burnish.adapters.hosts.model_file import hub_model
from burnish.cli.engines import EngineOffer, engines_here, larger_model, offers
from burnish.config.config import Config
from burnish.proxy.plain import plain
from burnish.proxy.program_log import set_level
from burnish.proxy.rate_limited import RateLimited
from burnish.system.extras import how_to_install, missing_for_training
from burnish.terminal.client import read_settings
from burnish.terminal.errors import WrongUsage
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
from burnish.terminal.terminal import console

_MB = 1e6
STEPS = 10
"""So many lines say how far a download is when there is no terminal, e.g. in a service's log."""


def up(
    host: Host = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on [8787]; 0 picks a free one.")] = None,
    upstream: Upstream = None,
    model: Model = None,
    context: Context = None,
    parallel: Parallel = None,
    engine: Engine = None,
    engine_python: EnginePython = None,
    engine_args: EngineArgs = None,
    workers: Removed = None,
    data_dir: DataDir = None,
    train_after: Annotated[
        int | None,
        typer.Option(help="Ratings after which a run starts by itself [32]; good and bad ones among them."),
    ] = None,
    no_train: NoTrain = False,
    log_level: Annotated[
        str | None,
        typer.Option(help="Print events from this level on: debug, info, warning or error [info]."),
    ] = None,
    config: ConfigFile = None,
) -> None:
    from burnish.app.serve import serve

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
        "log_level": log_level,
    }
    settings = _settings(flags, config, train_after, no_train=no_train)
    _log_to_terminal(settings)
    if (settings.model and not settings.upstream) and settings.managed in (None, "llama-server"):
        _fetch(settings.model)
    model_name = settings.model or "small model"
    what = settings.upstream or f"{settings.managed or 'the embedded engine'} ({model_name})"
    if settings.train.enabled and (missing := missing_for_training()):
        console.print(
            f"[yellow]ratings are kept, but training can't run without {', '.join(missing)}[/]; "
            f"run: {escape(how_to_install('train'))}",
            soft_wrap=True,  # the command can be copied whole
        )
    console.print(f"[dim]starting with {escape(what)} …[/]")
    serve(settings, lambda url: _welcome(url, settings))
    console.print("[dim]stopped[/]")


def _settings(flags: dict[str, Any], file: Path | None, train_after: int | None, *, no_train: bool) -> Config:
    """Read the settings, and ask for an engine if they name none. Raises WrongUsage."""
    if train_after is not None and no_train:
        raise WrongUsage("--train-after and --no-train exclude each other: leave one out")
    if no_train:
        flags["train"] = {"enabled": False}
    elif train_after is not None:
        flags["train"] = {"min_ratings": train_after}
    settings = read_settings(flags, file=file)
    if train_after is not None and not (settings.train.enabled and settings.train.schedule != "manual"):
        setting = 'schedule = "manual"' if settings.train.enabled else "enabled = false"
        raise WrongUsage(f"--train-after has no effect with {setting} under [train]: change one of the two")
    engine = (settings.upstream, settings.managed, settings.model, settings.context, settings.parallel)
    if not any(engine) and (choice := _choose_engine(is_new=not settings.log_file.exists())):
        return read_settings(flags | choice, file=file)
    return settings


def _fetch(name: str) -> None:
    """Download a model of the hub unless it is here, and show how far it is; leave other names to the engine.

    Raises EngineError.
    """
    model = hub_model(name)
    if model is None or cached(model):
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        download = bar.add_task("", visible=False)
        total = steps = 0

        def start(file: HubFile) -> None:
            nonlocal total
            total = file.size
            bar.update(download, total=total, visible=True)
            words = f"downloading {file.path} of {file.repo} from {urlsplit(endpoint()).netloc}, {total / _MB:,.0f} MB"
            console.print(escape(words), soft_wrap=True)

        def progress(count: int) -> None:
            nonlocal steps
            bar.update(download, completed=count)
            if STEPS * count // total > steps and not console.is_terminal:
                console.print(f"  {count / _MB:,.0f} of {total / _MB:,.0f} MB")
            steps = STEPS * count // total

        try:
            path = fetched(model, start, progress)
        except KeyboardInterrupt:
            console.print("stopped; the next start goes on with what is here")
            raise
    console.print(f"[dim]the model is in {escape(str(path))}[/]", soft_wrap=True)


def _choose_engine(*, is_new: bool) -> dict[str, Any]:
    """Ask which of the engines that run here to use; return the settings for it, none for the small model.

    Without a terminal, print the engines and choose none. If none runs, a new data directory (``is_new``) is offered a
    larger model. Later, the versions of another model would be lost by it.
    """
    engines = asyncio.run(engines_here())
    for url, engine in engines:
        if not engine.takes_versions:
            what = f"{NAMES[engine.kind]} with {plain(engine.model)} answers at {url}. {LM_STUDIO}."
            console.print(f"[dim]{escape(what)}[/]", soft_wrap=True)
    choices = offers(engines)
    if is_new and not choices and (larger := larger_model()):
        choices = [larger]
    if not sys.stdin.isatty():
        for offer in choices:
            words = f"{offer.words}; to use it: burnish up {offer.flags}"
            console.print(f"[dim]{escape(words)}[/]", soft_wrap=True)
        return {}
    if len(choices) == 1:
        choice = choices[0] if typer.confirm(f"{choices[0].words}. Use it?", default=True) else None
    else:
        choice = _chosen(choices) if choices else None
    if choice and not choice.upstream:
        again = f"the next start needs it again: burnish up {choice.flags}; burnish init keeps the choice"
        console.print(f"[dim]{escape(again)}[/]", soft_wrap=True)
    return {"upstream": choice.upstream, "model": choice.model} if choice else {}


def _chosen(choices: Sequence[EngineOffer]) -> EngineOffer | None:
    """Ask for one of several engines; None: the embedded engine with the small model."""
    options = {str(number): offer for number, offer in enumerate([*choices, None], 1)}
    console.print("Which engine serves the model?")
    for number, offer in options.items():
        words = offer.words if offer else "burnish's own engine, with a small model"
        console.print(f"  [cyan]{number}[/]  {escape(words)}", soft_wrap=True)
    while (number := str(typer.prompt("Engine", default="1")).strip()) not in options:
        console.print(f"[yellow]choose a number from 1 to {len(options)}[/]")
    return options[number]


def _welcome(url: str, config: Config) -> None:
    console.print(f"\n[bold]burnish is up[/] at [bold cyan]{url}[/]   [dim](Ctrl-C stops it)[/]\n")
    console.print(f"  point any OpenAI client at  [cyan]{url}/v1[/]  with model [cyan]default[/]")
    console.print("  talk and rate here          [cyan]burnish chat[/]")
    console.print('  rate the last answer        [cyan]burnish good[/]   [cyan]burnish bad "too long"[/]')
    console.print("  or type into any chat       [cyan]/rl good[/]   [cyan]/rl bad too long[/]")
    if config.instructions:
        console.print(
            "  your comments on answers are added to the system prompt: [cyan]burnish instructions[/]"
        )
    for name in config.parts:
        console.print(
            f"  your own part, from {escape(str(config.file))}: [cyan]{escape(name)}[/]", soft_wrap=True
        )
    console.print(f"  {_next_step(config)}\n")


def _next_step(config: Config) -> str:
    train = config.train
    if config.upstream:
        return "to see if burnish can swap versions in this upstream: [cyan]burnish status[/]"
    if not train.enabled:
        return "training is off (--no-train)"
    if train.schedule == "manual":
        return "to train: [cyan]burnish train[/]"
    then = "offers you" if train.promote == "manual" else "uses"
    least = max(train.min_ratings, train.min_good + train.min_bad)
    return (
        f"after {train.min_comments} comments on answers that aren't good, or {least} ratings "
        f"({train.min_good} good and {train.min_bad} bad or more), it trains, and {then} the new version if it is "
        "better: [cyan]burnish status[/]"
    )


def _log_to_terminal(config: Config) -> None:
    handler = RichHandler(console=console, show_path=False, markup=False, log_time_format="%H:%M:%S")
    logging.basicConfig(format="%(message)s", handlers=[RateLimited(handler)])
    set_level(config.log_level)
