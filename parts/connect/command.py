"""``burnish connect | disconnect``: point an agent at burnish, and undo exactly that."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from burnish.adapters import catalogue
from burnish.adapters.hosts.context import memory_of
from burnish.config.config import Config
from burnish.config.model_names import DEFAULT_MODEL
from burnish.parts.connect import AGENTS, Agent, FileChange, Home, Place, connection, is_own
from burnish.parts.connect.base import EMBEDDED
from burnish.proxy.surfaces.catalogue import window_of
from burnish.terminal.client import Proxy, read_settings
from burnish.terminal.errors import CommandFailed, NotRunning, WrongUsage
from burnish.terminal.terminal import Url, console

ANSWER_TOKENS = 4096
"""An answer and some turns of a conversation need that much besides the agent's first request."""
_GB = 1e9

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="AGENT",
        help="The agent's name; leave it out to list all agents.",
        autocompletion=lambda: list(AGENTS),
    ),
]


def connect(
    agent: Name = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model that the agent requests (default: the model that burnish serves)."),
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the settings instead of changing the agent's files.")
    ] = False,
    url: Url = None,
) -> None:
    config = read_settings()
    if agent is None:
        _list(config)
        return
    target = _known(agent)
    place, upstream = _place(Proxy(url), config, model)
    changes = target.changes(place, Home())
    if only_print:
        _print(changes, target.by_hand(place))
        return
    remote = target.remote(Home())
    if remote:
        _say_lines(connection.connect_remote(remote, place, _remote_record(config, target)))
    show_files(connection.connect(changes, _record(config, target), private=place.key is not None))
    show_use(target, place, Home(), remote=remote is not None)
    if remote or changes:
        console.print(f"To undo: [cyan]burnish disconnect {target.name}[/]", soft_wrap=True)
    if upstream is None:
        console.print(
            f"[yellow]burnish isn't running at {escape(place.url)} yet. Start it with: burnish up[/]"
        )
    elif narrow := _too_narrow(target, place.window, Proxy(url)):
        console.print(f"[yellow]{escape(narrow)}[/]", soft_wrap=True)


def show_use(agent: Agent, place: Place, home: Home, *, remote: bool = False) -> None:
    """Say what still overrides an agent that uses burnish now, and how to rate; of any, what is left to do by hand.

    ``remote``: it was connected by its API.
    """
    connected = remote or (agent.changes(place, home) and not agent.imports)
    if connected:
        overrides = agent.overrides(place, home)
        console.print(
            f"{agent.title} now uses {place.url}{', except:' if overrides else '.'}", soft_wrap=True
        )
        for sentence in overrides:
            console.print(f"  [yellow]{escape(sentence)}[/]", soft_wrap=True)
        console.print(f"To rate an answer, type into {agent.title}: [cyan]{escape(agent.rating)}[/]")
        if place.mode == "prompt" and agent.choice:
            console.print(f"After an answer it shows {agent.choice}.")
        elif place.mode == "prompt":
            console.print(
                f"[yellow]feedback.mode is prompt, but {agent.title} can't show a choice after an answer.[/]"
            )
    if steps := agent.by_hand(place):
        console.print(escape(steps), soft_wrap=True)


def disconnect(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="The agent's name.", autocompletion=lambda: list(AGENTS))
    ],
) -> None:
    target, config = _known(agent), read_settings()
    record = _remote_record(config, target)
    remote = target.remote(Home())
    if record.exists() and not remote:
        raise WrongUsage(
            f"{target.title} was connected by its API, so its key is needed again. {target.key_help}"
        )
    lines = connection.disconnect_remote(remote, record) if remote else []
    profile = connection.profile_of(target.changes(Place(""), Home()))
    outcomes = connection.disconnect(_record(config, target), profile)
    if not outcomes and not lines:
        console.print(f"{target.title} isn't connected: there is nothing to undo")
    for other in dict.fromkeys(change.profile for change in connection.recorded(_record(config, target))):
        if other not in ("", profile):
            console.print(
                f"still connected: {escape(other)}. To undo it, set the variable that names it, as for connect",
                soft_wrap=True,
            )
    _say_lines(lines)
    show_files(outcomes)


def _known(name: str) -> Agent:
    if name not in AGENTS:
        raise WrongUsage(f"{name!r} isn't an agent that burnish knows; use one of: {', '.join(AGENTS)}")
    return AGENTS[name]


def _record(config: Config, agent: Agent) -> Path:
    return connection.record_file(config.data_dir, agent.name)


def _remote_record(config: Config, agent: Agent) -> Path:
    return connection.remote_file(config.data_dir, agent.name)


def _place(proxy: Proxy, config: Config, model: str | None) -> tuple[Place, str | None]:
    """Return what an agent must know about burnish, and the upstream; None if burnish isn't running."""
    upstream: str | None
    try:
        status = proxy.get("/burnish/status")
        upstream, has_key = str(status["upstream"]), bool(status["upstream_api_key"])
    except NotRunning:
        upstream, has_key = None, config.upstream_api_key is not None
    address = upstream or config.upstream or EMBEDDED
    place = place_at(proxy.url, address, config, has_key=has_key, model=model)
    return replace(place, window=window_at(proxy, place.model) if upstream else None), upstream


def place_at(url: str, upstream: str, config: Config, *, has_key: bool, model: str | None = None) -> Place:
    """Return what an agent must know about burnish. ``has_key``: burnish has a key for the upstream."""
    own_engine = is_own(upstream)
    return Place(
        url=url,
        model=model or "default",
        renames=model is not None or own_engine,
        own_credentials=not (own_engine or has_key),
        key=config.api_key.get_secret_value() if config.api_key else None,
        hook=shlex.join([*_program(), "hook", "--url", url]),
        mode=config.feedback.mode,
    )


def window_at(proxy: Proxy, model: str) -> int | None:
    """Return the tokens that the engine takes; None if it doesn't tell."""
    try:
        models = {entry["id"]: entry for entry in proxy.get("/v1/models")["data"]}
        return window_of(models.get(model) or models[DEFAULT_MODEL])
    except (CommandFailed, LookupError, TypeError):
        return None


def _too_narrow(agent: Agent, takes: int | None, proxy: Proxy) -> str | None:
    """Return what to do if the engine can't take the agent's requests; None if it can, or doesn't tell."""
    needed = agent.sends_tokens + ANSWER_TOKENS
    if not takes or takes >= needed:
        return None
    try:
        window = proxy.get("/burnish/status")["engine"]["window"]
    except (CommandFailed, LookupError):
        return None
    words = (
        f"{agent.title} sends about {agent.sends_tokens:,} tokens with its first message, and the engine takes "
        f"{takes:,} with the answer. "
    )
    if window is None:
        return words + f"Start the engine with a context of {needed:,} or more."
    if window["trained"] >= needed:
        return words + f"Start burnish with --context {needed}; --parallel 1 takes the least memory for it."
    take = "burnish up --model with a longer context"
    if alternative := catalogue.for_context(needed):
        one, several = (memory_of(alternative, needed, slots, None) / _GB for slots in (1, None))
        take = (
            f"burnish up --model {alternative.name} --context {needed} --parallel 1. Its engine takes {one:.1f} GB, or "
            f"{several:.1f} GB without --parallel 1"
        )
    return words + (
        f"The model was trained for {window['trained']:,}. Take another: {take}. Or put your own engine behind "
        "burnish: burnish up --upstream URL"
    )


def _program() -> list[str]:
    """Return the command that starts this installation of burnish from any directory."""
    started = Path(sys.argv[0])
    if started.name == "burnish":
        return [str(started.absolute())]
    return [sys.executable, "-m", "burnish"]


def _print(changes: Sequence[FileChange], by_hand: str) -> None:
    for change in changes:
        typer.echo(f"# {change.path}\n{change.made(None)}")
    if by_hand:
        typer.echo(by_hand)


def show_files(outcomes: Sequence[connection.FileOutcome], name: Callable[[Path], str] = str) -> None:
    for outcome in outcomes:
        console.print(f"  {outcome.what:<10} {escape(name(outcome.path))}", soft_wrap=True)
        if outcome.why:
            console.print(f"             [yellow]{escape(outcome.why)}[/]", soft_wrap=True)


def _say_lines(lines: Sequence[str]) -> None:
    for line in lines:
        console.print(f"  {escape(line)}", soft_wrap=True)


def _list(config: Config) -> None:
    table = Table("agent", "", "connected", "to rate, type", box=None)
    for agent in AGENTS.values():
        recorded = connection.recorded(_record(config, agent)) and not agent.imports
        connected = "yes" if recorded or _remote_record(config, agent).exists() else "no"
        table.add_row(agent.name, agent.title, connected, agent.rating)
    console.print(table)
