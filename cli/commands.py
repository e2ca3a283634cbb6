"""The program ``burnish``: its commands, its exit codes, and how it fails.

A command's module is imported when the command is called, so every command starts fast.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import burnish
from burnish.adapters.errors import AdapterError
from burnish.proxy.http.errors import BurnishError
from burnish.terminal.errors import CommandFailed

EPILOG = (
    "Exit codes: 0 success · 1 failure · 2 wrong usage or a wrong value · 3 burnish isn't running · "
    "130 interrupted. Commands find burnish by --url, then BURNISH_URL, then its data directory."
)


@dataclass(frozen=True)
class _Entry:
    target: str
    """"module:name" below ``burnish``: a function, or a Typer with subcommands."""
    help: str
    """The first line of the help. The docstring of the target has the details, if there are any."""
    hidden: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


COMMANDS = {
    "up": _Entry("cli.up:up", "Start the proxy, and the embedded engine unless you name an upstream."),
    "models": _Entry(
        "cli.models:show", "List good small models for the embedded engine: size, licence, memory, context."
    ),
    "init": _Entry(
        "parts.desktop.init.command:init",
        "Set burnish up: engine, agents, training, service. --undo takes it back.",
    ),
    "connect": _Entry("parts.connect.command:connect", "Point an agent at burnish, and add /rl to it."),
    "disconnect": _Entry("parts.connect.command:disconnect", "Undo exactly what `burnish connect` changed."),
    "hook": _Entry(
        "parts.connect.hook:hook", "Run an /rl command that an agent's hook passes on stdin.", hidden=True
    ),
    "chat": _Entry("parts.desktop.chat.command:chat", "Talk to the model and rate each answer."),
    "good": _Entry("cli.rate:good", "Rate the last answer (or --id) good."),
    "bad": _Entry("cli.rate:bad", "Rate the last answer (or --id) bad."),
    # A rating such as -0.5 is not an option.
    "rate": _Entry(
        "cli.rate:rate",
        "Rate an answer by its ID.",
        settings={"context_settings": {"ignore_unknown_options": True}},
    ),
    "undo": _Entry("cli.rate:undo", "Take back your last rating, or one by its ID."),
    "status": _Entry(
        "cli.show:status", "Show the live version, the ratings so far, and when training starts."
    ),
    "history": _Entry(
        "cli.history:history", "List the latest answers, their ratings and comments, newest first."
    ),
    "show": _Entry(
        "cli.history:show", "Show one answer: who asked, the model, both texts, and what each rating teaches."
    ),
    "regenerations": _Entry(
        "cli.history:regenerations", "List regenerated answers and which one was kept, newest first."
    ),
    "raters": _Entry("cli.show:raters", "Show how each rater rates, and how often raters agree."),
    "train": _Entry("cli.train:train", "Train now."),
    "watch": _Entry("cli.watch:watch", "Show how far the training run under way is, and how it ends."),
    "pause": _Entry(
        "cli.train:pause", "Stop starting runs automatically. Ratings are kept; the live version stays."
    ),
    "resume": _Entry("cli.train:resume", "Start runs automatically again."),
    "adapters": _Entry("cli.adapters:app", "List, show, judge, promote and roll back versions."),
    "rollouts": _Entry(
        "parts.rollouts.command:rollouts",
        "List what agents achieved: rollouts and their rewards, newest first.",
    ),
    "reset": _Entry(
        "cli.train:reset", "Start learning over: back to the base model, without the ratings so far."
    ),
    "reward": _Entry(
        "parts.rewards.command:app", "Learn a reward model from the ratings, and score answers with it."
    ),
    "instructions": _Entry(
        "cli.instructions:app", "List and change the instructions that are added to the system prompt."
    ),
    "judge": _Entry(
        "parts.judging.command:app", "Have a model judge answers by your principles (AI feedback)."
    ),
    "backup": _Entry(
        "cli.keep:backup", "Copy the log into a file and check the copy. burnish may be running."
    ),
    "export": _Entry(
        "cli.keep:export", "Write everything the log holds about one user: requests, answers, ratings …"
    ),
    "data": _Entry(
        "parts.datasets.command:app",
        "Export datasets for training elsewhere; import ratings from other programs.",
    ),
    "forget": _Entry("cli.keep:forget", "Erase one user's requests, answers and ratings for good."),
    "doctor": _Entry(
        "cli.doctor:doctor", "Check this set-up, whether burnish runs or not. Exits 1 if a check fails."
    ),
    "service": _Entry(
        "parts.desktop.service.command:app", "Run burnish as a service: at login, and again after a crash."
    ),
    "demo": _Entry(
        "parts.desktop.demo.command:demo",
        "Watch burnish learn from a simulated user who likes short answers.",
    ),
}


class _Commands(TyperGroup):
    """Lists every command from the table, and imports only the one that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, entry in COMMANDS.items():
            self.commands[name] = TyperCommand(name=name, help=entry.help, hidden=entry.hidden)
        self._names_only = False

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # The original shortens each help to one line.
        with formatter.section("Commands"):
            formatter.write_dl([(n, c.help or "") for n, c in self.commands.items() if not c.hidden])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return self.commands[cmd_name] if self._names_only else load(cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        # A shell completes a command's name. The original gets each command for its help.
        self._names_only = True
        return super().shell_complete(ctx, incomplete)


def load(name: str) -> Any:
    entry = COMMANDS[name]
    module, _, attribute = entry.target.partition(":")
    target = getattr(import_module(f"burnish.{module}"), attribute)
    if isinstance(target, typer.Typer):
        group = typer.main.get_group(target)
        group.name, group.help = name, entry.help
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    details = getdoc(target) or ""
    alone.command(name, help=f"{entry.help}\n\n{details}".strip(), hidden=entry.hidden, **entry.settings)(
        target
    )
    return typer.main.get_command(alone)


app = typer.Typer(
    name="burnish",
    cls=_Commands,
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help takes twice as long to import as all the rest
)


def _version(flag: bool) -> None:
    if flag:
        typer.echo(f"burnish {burnish.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    env_file: Annotated[
        Path | None,
        typer.Option(
            "--env-file",
            metavar="FILE",
            help="Also read BURNISH_… variables from a file, e.g. compose's .env.",
        ),
    ] = None,
) -> None:
    """An OpenAI-compatible proxy that learns from your ratings."""
    if env_file:
        os.environ["BURNISH_ENV_FILE"] = str(env_file.absolute())
    if Path(".env").is_file():
        _say_what_is_not_read()


def _say_what_is_not_read() -> None:
    """A file of variables in the current folder is not read: it may be somebody else's repository."""
    from burnish.config.config import ENV_FILE, ENV_FILE_VARIABLE, default_config_file
    from burnish.config.settings import variables_in

    file, own_file = Path(ENV_FILE).absolute(), default_config_file().with_name(ENV_FILE)
    if file in (own_file, Path(os.environ.get(ENV_FILE_VARIABLE, ""))) or not file.is_file():
        return
    try:
        names = ", ".join(variables_in(file))
    except BurnishError:
        return
    if names:
        _print(
            "[yellow]burnish:[/]",
            f"{file} sets {names}, which isn't read: any cloned repository can have such a file. "
            f"If it is yours, move the lines to {own_file}, or call burnish --env-file {ENV_FILE}",
        )


def main() -> None:
    """Run the program; every expected failure is one sentence on stderr and an exit code."""
    try:
        app(prog_name="burnish")
    except CommandFailed as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except (BurnishError, AdapterError) as error:
        _complain(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Without this, Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _print(label: str, message: str) -> None:
    from rich.markup import escape

    from burnish.terminal.terminal import errors

    errors.print(f"{label} {escape(message)}")


def _complain(message: str) -> None:
    _print("[bold red]burnish:[/]", message)
    if "NOTIFY_SOCKET" in os.environ:
        from burnish.system.notify import tell_status

        tell_status(message)
