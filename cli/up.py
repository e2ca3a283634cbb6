"""``burnish up``."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.logging import RichHandler
from rich.markup import escape

from burnish.adapters.hosts.detect import LM_STUDIO, NAMES
from burnish.cli.engines import EngineOffer, engines_here, offers
from burnish.cli.fetch import fetch
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
    Upstream,
)
from burnish.terminal.terminal import console


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
        "train": {"enabled": False} if no_train else None,
    }
    if train_after is not None:
        if no_train:
            raise WrongUsage("--train-after and --no-train exclude each other: leave one out")
        flags["train"] = {"min_ratings": train_after}
    settings = read_settings(flags, file=config)
    if train_after is not None and not (settings.train.enabled and settings.train.schedule != "manual"):
        setting = 'schedule = "manual"' if settings.train.enabled else "enabled = false"
        raise WrongUsage(f"--train-after has no effect with {setting} under [train]: change one of the two")
    chosen_before = (settings.upstream, settings.managed, settings.model, settings.context, settings.parallel)
    if not any(chosen_before) and (engine_settings := _choose_engine()):
        settings = read_settings(flags | engine_settings, file=config)
    _log_to_terminal(settings)
    if (settings.model and not settings.upstream) and settings.managed in (None, "llama-server"):
        fetch(settings.model)
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


def _choose_engine() -> dict[str, Any]:
    """Ask which of the engines that run here to use; return the settings for it, none for the small model.

    Without a terminal, print the engines and choose none.
    """
    engines = asyncio.run(engines_here())
    for url, engine in engines:
        if not engine.takes_versions:
            what = f"{NAMES[engine.kind]} with {plain(engine.model)} answers at {url}. {LM_STUDIO}."
            console.print(f"[dim]{escape(what)}[/]", soft_wrap=True)
    choices = offers(engines)
    if not sys.stdin.isatty():
        for offer in choices:
            console.print(
                f"[dim]{escape(offer.words)}; to use it: burnish up {escape(offer.flags)}[/]", soft_wrap=True
            )
        return {}
    if len(choices) == 1:
        choice = choices[0] if typer.confirm(f"{choices[0].words}. Use it?", default=True) else None
    else:
        choice = _chosen(choices) if choices else None
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
