"""``burnish doctor``: check this set-up, and say how to fix each fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from burnish.cli import doctor_deep as stored
from burnish.cli import doctor_machine as machine
from burnish.cli import doctor_network as network
from burnish.cli.doctor_machine import Finding
from burnish.config.config import default_config_file
from burnish.terminal.client import find, read_settings
from burnish.terminal.errors import CommandFailed, WrongUsage
from burnish.terminal.terminal import Json, Url, console, printed_json

MARKS = {"ok": "[green]✓[/]", "warn": "[yellow]![/]", "fail": "[red]✗[/]"}


def doctor(
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also compare every text of the log and every version with its digest."),
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """If burnish runs on this machine, its configuration is checked, else the one that it would start with."""
    findings = []
    for finding in examine(url, deep=deep):
        findings.append(finding)
        if not as_json:
            console.print(
                f" {MARKS[finding.level]} {finding.what:<13} {escape(finding.text)}", soft_wrap=True
            )
    printed_json([asdict(finding) for finding in findings], as_json)
    if failed := [finding.what for finding in findings if finding.level == "fail"]:
        raise CommandFailed(f"fix these first: {', '.join(failed)}")


def examine(url: str | None, *, deep: bool) -> Iterator[Finding]:
    """Run every check, whatever the others find."""
    yield machine.python()
    try:
        own = config = read_settings()
        address, absent = find(url, own)
    except WrongUsage as error:
        yield Finding("fail", "configuration", str(error))
        return
    file = default_config_file()
    yield Finding("ok", "configuration", f"valid ({file if file.is_file() else f'there is no {file}'})")
    running = None if absent else network.running(address, own)
    if isinstance(running, Finding):
        yield running
    elif running:
        config = running.config
        yield Finding("ok", "configuration", f"from here on, that of burnish at {address}")
        yield Finding("ok", "data", f"{config.data_dir}, in use")
    else:
        yield machine.data_dir(config)
    yield machine.disk(config)
    yield machine.clock(config)
    if config.upstream:
        if isinstance(running, network.RunningProxy):
            yield from network.started(running)
        yield network.upstream(config)
        yield (
            network.engine_of(running)
            if isinstance(running, network.RunningProxy)
            else network.engine(config)
        )
    elif config.managed:
        for check in (machine.memory, network.startable, machine.trainer):
            yield check(config)
    else:
        for check in (machine.memory, machine.model, machine.engine, machine.trainer):
            yield check(config)
    if config.signals.enabled:
        yield machine.signals()
    yield from (
        network.further_of(running) if isinstance(running, network.RunningProxy) else network.further(config)
    )
    if deep:
        yield stored.log(config)
        yield from stored.versions(config)
    yield from network.proxy(address, absent, own)
