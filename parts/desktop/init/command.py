"""``burnish init``: flags, the plan on the screen, and the summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.config.config import Config, default_config_file
from burnish.config.settings import ENV_PREFIX
from burnish.parts.connect import AGENTS, Home, Place
from burnish.parts.connect.base import EMBEDDED
from burnish.parts.connect.command import place_at, show_files, show_use, window_at
from burnish.parts.desktop.init.backend import SIZE, install, missing_backend
from burnish.parts.desktop.init.background import ServiceEnd, ServiceHere, ServiceStart
from burnish.parts.desktop.init.carrying_out import Background, carry_out, purge, undo
from burnish.parts.desktop.init.plan import SetupAnswers, SetupPlan, SetupRecord, make_plan
from burnish.parts.desktop.init.questions import (
    Flags,
    Questions,
    agents_here,
    check_engine,
    check_trainer,
    check_versions,
    running_here,
)
from burnish.parts.desktop.service import this_machines
from burnish.proxy.plain import plain
from burnish.terminal.client import Proxy, read_settings
from burnish.terminal.errors import CommandFailed, Interrupted, WrongUsage
from burnish.terminal.terminal import console

Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Ask nothing; take the default for each missing answer.")
]
Purging = Annotated[bool, typer.Option("--purge", help="With --undo: also delete the data directory.")]
ANSWERS = "--upstream, --model, --base, --agents, --preset, --schedule, --port, --service or --no-service"


Base = Annotated[
    str | None,
    typer.Option(
        help="Weights that the engine serves, to train on, if it doesn't tell: a GGUF file, a Hugging Face "
        "directory, or OWNER/NAME on the hub."
    ),
]
Installs = Annotated[
    bool | None,
    typer.Option("--install/--no-install", help="Install what training needs, if it is missing."),
]


def init(
    upstream: Annotated[
        str | None,
        typer.Option(help='URL of your engine, or "embedded" for the one that comes with burnish.'),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help='GGUF file for the embedded engine, or "small"; with --upstream, the model that learns.'
        ),
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(
            help='Agents to connect: names separated by commas, "found" (installed here) or "none".'
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="How fast it learns: careful, balanced or aggressive.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="When it trains: auto, manual, or a window such as 01:00-06:30.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")] = None,
    service: Annotated[
        bool | None,
        typer.Option("--service/--no-service", help="Run burnish in the background, also after each login."),
    ] = None,
    base: Base = None,
    installs: Installs = None,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    take_back: Annotated[
        bool, typer.Option("--undo", help="Take back all that init did. Your data stays.")
    ] = False,
    purging: Purging = False,
) -> None:
    """Writes the configuration, connects agents and starts burnish in the background.

    A second run starts from the present settings and changes only what gets another answer.
    """
    flags = Flags(agents, upstream, model, preset, schedule, port, service, base, installs)
    if take_back:
        if dry_run or flags != Flags():
            raise WrongUsage("--undo goes only with --purge and --yes; nothing was changed")
        _undo(purging=purging, yes=yes)
        return
    if purging:
        raise WrongUsage("--purge belongs to --undo: burnish init --undo --purge")
    asks = not yes and sys.stdin.isatty()
    if not (asks or yes or dry_run):
        raise WrongUsage(
            "init asks questions, but there is no terminal: add --yes to take the defaults, and give other "
            f"answers with {ANSWERS}"
        )
    try:
        _set_up(flags, asks=asks, dry_run=dry_run)
    except (typer.Abort, KeyboardInterrupt) as error:
        raise Interrupted("nothing was changed") from error


def _set_up(flags: Flags, *, asks: bool, dry_run: bool) -> None:
    settings, home = read_settings(), Home()
    if asks:
        console.print("Nothing is changed until you have seen the plan.")
    file = Path(os.environ.get(f"{ENV_PREFIX}CONFIG") or default_config_file()).absolute()
    earlier = SetupRecord.read(settings.data_dir)
    service_here = ServiceHere(flags.service, earlier)
    running = running_here(settings)
    questions = Questions(flags, settings, earlier, home, own_url=service_here.url or running, asks=asks)
    answers = questions.answers(service_possible=service_here.service is not None)
    config = _settings_of(answers)
    missing = _checked(config)
    command = None if missing or flags.installs is False else missing_backend(config)
    missing = missing or (None if command else check_trainer(config))
    url, has_key = f"http://127.0.0.1:{config.port}", config.upstream_api_key is not None
    place = place_at(url, config.upstream or EMBEDDED, config, has_key=has_key)
    if running and (config.upstream, config.model) == (settings.upstream, settings.model):
        place = replace(place, window=window_at(Proxy(url), place.model))
    plan = make_plan(answers, place, file, settings.data_dir, home, users_service=service_here.users)
    step = service_here.step(plan, config)
    show_plan(plan, step, file, home)
    if command:
        console.print(
            f"  install the packages that train, {SIZE}:\n          [dim]{escape(command)}[/]", soft_wrap=True
        )
    if missing:
        console.print(f"[yellow]{escape(missing)}[/]", soft_wrap=True)
    if dry_run:
        return
    if asks and command and flags.installs is None and not typer.confirm("Install them?", default=True):
        console.print(
            f"[yellow]burnish keeps ratings, and can't train until you run it[/]: {escape(command)}",
            soft_wrap=True,
        )
        command = None
    if plan.changes_anything or step or command:
        if asks and not typer.confirm("Go ahead?", default=True):
            raise Interrupted("nothing was changed")
        if command:
            install(command)
        with console.status("starting burnish …" if isinstance(step, ServiceStart) else ""):
            carry_out(plan, step)
    show_result(plan, place, home)
    if not (asks or earlier or flags.agents or answers.upstream):
        show_unconnected([name for name in agents_here(home) if name not in answers.agents])
    show_how_it_runs(
        plan, step, service_here.missing, running=bool(running) and not isinstance(step, ServiceEnd)
    )
    console.print(f"\n{ADVICE}\n\nTo take all of this back: [cyan]burnish init --undo[/]")


def _checked(config: Config) -> str | None:
    """Return why the engine may not answer or learn, if so. Raises CommandFailed if it can't answer."""
    try:
        with console.status("checking the engine …"):
            return check_engine(config) or check_versions(config)
    except WrongUsage:
        raise
    except CommandFailed as error:
        raise CommandFailed(
            f"{error}, or name another engine with --upstream; nothing was changed"
        ) from error


def _settings_of(answers: SetupAnswers) -> Config:
    """Check the answers together with all other settings. Raises WrongUsage."""
    config = read_settings(answers.flags())
    # Flags can't unset what a file sets.
    train = config.train.model_copy(update={"base": answers.base})
    upstream = config.upstream if answers.upstream else None
    return config.model_copy(update={"upstream": upstream, "model": answers.model, "train": train})


def _undo(*, purging: bool, yes: bool) -> None:
    config, home = read_settings(), Home()
    data_dir = config.data_dir
    record = SetupRecord.read(data_dir)
    if record is None:
        console.print(
            f"There is nothing to undo: {short_path(data_dir, home)} has no record of burnish init.",
            soft_wrap=True,
        )
    if record and record.service:
        for note in this_machines().uninstall() or ():
            console.print(escape(note), soft_wrap=True)
        console.print("  removed    the service")
    outcomes = undo(data_dir)
    show_files(outcomes, lambda path: short_path(path, home))
    leftovers = [outcome for outcome in outcomes if outcome.what == "left"]
    if not purging and data_dir.exists():
        place = short_path(data_dir, home)
        console.print(
            f"Your answers, ratings and versions are kept in [cyan]{escape(place)}[/].", soft_wrap=True
        )
        console.print("To delete them too: [cyan]burnish init --undo --purge[/]")
    if any(outcome.what == "restored" for outcome in outcomes) and running_here(config):
        console.print("[yellow]burnish is still running with the settings that were undone: restart it[/]")
    if leftovers:
        raise CommandFailed("not everything could be undone: mend the files above, then run it again")
    if purging and data_dir.exists():
        _purge(data_dir, home, [Path(folder) for folder in record.folders] if record else [], yes=yes)


def _purge(data_dir: Path, home: Home, folders: Sequence[Path], *, yes: bool) -> None:
    if not yes:
        if not sys.stdin.isatty():
            raise WrongUsage(f"nothing was deleted: to delete {data_dir} without a question, add --yes")
        what = f"Delete {plain(str(data_dir))} with all answers, ratings and versions?"
        try:
            sure = typer.confirm(what, default=False)
        except typer.Abort:
            sure = False
        if not sure:
            raise Interrupted(f"{data_dir} was kept")
    leftovers = purge(data_dir, folders)
    console.print(f"  deleted    {escape(short_path(data_dir, home))}", soft_wrap=True)
    for path in leftovers:
        console.print(f"  left       {escape(short_path(path, home))}: it isn't burnish's", soft_wrap=True)


# -- the screen --------------------------------------------------------------------------------------------------------

ADVICE = """\
Rate both good and bad answers, and say in words what is wrong:
  in a chat     [cyan]/rl good[/]   [cyan]/rl bad too long[/]
  in a shell    [cyan]burnish good[/]   [cyan]burnish bad "too long"[/]
Words teach the most."""


def show_plan(plan: SetupPlan, step: Background | None, file: Path, home: Home) -> None:
    if not (plan.changes_anything or step):
        console.print("\nEverything is already set up like this: nothing to change.")
        return
    console.print("\n[bold]This changes:[/]")
    for part in plan.parts:
        for change in part.planned:
            if not change.changes:
                continue
            path = Path(change.record.path)
            console.print(
                f"  {'create' if change.text is None else 'change'}  {escape(short_path(path, home))}",
                soft_wrap=True,
            )
            if path == file:
                for name, old, new in plan.settings:
                    console.print(f"          [dim]{escape(_setting(name, old, new))}[/]", soft_wrap=True)
    for name in plan.dropped:
        console.print(f"  undo    the settings of {AGENTS[name].title}")
    if isinstance(step, ServiceStart):
        again = "  restart burnish, which runs in the background, with the new settings"
        console.print(
            "  start   burnish as a service, now and at each login" if plan.installs_service else again
        )
    elif step:
        console.print("  stop    burnish, and remove the service")


def _setting(name: str, old: Any, new: Any) -> str:
    if new is None:
        return f"{name} is removed (was {plain(str(old))})"
    return f"{name} = {plain(str(new))}" + (f" (was {plain(str(old))})" if old is not None else "")


def short_path(path: Path, home: Home) -> str:
    """Return a path with ~ for the home directory."""
    return f"~/{path.relative_to(home.path)}" if path.is_relative_to(home.path) else str(path)


def show_result(plan: SetupPlan, place: Place, home: Home) -> None:
    console.print(f"\n[bold]burnish is set up[/] for [bold cyan]{escape(place.url)}[/]", soft_wrap=True)
    for name in plan.answers.agents:
        show_use(AGENTS[name], place, home)
    console.print(
        f"  other programs: URL [cyan]{escape(place.api)}[/], model [cyan]default[/]", soft_wrap=True
    )


def show_unconnected(names: Sequence[str]) -> None:
    if names:
        console.print(
            f"[yellow]{', '.join(names)}: installed, but not connected, because coding agents send more than the "
            "embedded engine reads.[/] To connect anyway: [cyan]burnish init --agents found[/]",
            soft_wrap=True,
        )


def show_how_it_runs(plan: SetupPlan, step: Background | None, missing: str, *, running: bool) -> None:
    if isinstance(step, ServiceStart) and step.installed:
        for note in step.installed.notes:
            console.print(escape(note), soft_wrap=True)
    if plan.answers.service:
        console.print("burnish runs in the background: [cyan]burnish service status[/]")
        return
    if missing:
        console.print(f"[yellow]{escape(missing)}[/]", soft_wrap=True)
    if not running:
        console.print("burnish doesn't run yet. Start it with: [cyan]burnish up[/]")
    elif plan.settings:
        console.print(
            "[yellow]burnish is running with the old settings: stop it, and start it with burnish up[/]"
        )
