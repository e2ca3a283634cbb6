"""``burnish doctor``: check this set-up, and say how to fix each fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from rich.markup import escape

from burnish.proxy.cli import doctor_machine as machine
from burnish.proxy.cli import doctor_network as network
from burnish.proxy.cli.client import find, read_settings
from burnish.proxy.cli.doctor_machine import Finding
from burnish.proxy.cli.errors import CommandFailed, WrongUsage
from burnish.proxy.cli.terminal import Json, Url, console, printed_json

MARKS = {"ok": "[green]✓[/]", "warn": "[yellow]![/]", "fail": "[red]✗[/]"}


def doctor(url: Url = None, as_json: Json = False) -> None:
    findings = []
    for finding in examine(url):
        findings.append(finding)
        if not as_json:
            console.print(
                f" {MARKS[finding.level]} {finding.what:<13} {escape(finding.text)}", soft_wrap=True
            )
    printed_json([asdict(finding) for finding in findings], as_json)
    if failed := [finding.what for finding in findings if finding.level == "fail"]:
        raise CommandFailed(f"fix these first: {', '.join(failed)}")


def examine(url: str | None) -> Iterator[Finding]:
    """Run every check, whatever the others find."""
    yield machine.python()
    try:
        config = read_settings()
    except WrongUsage as error:
        yield Finding("fail", "configuration", str(error))
        return
    yield Finding("ok", "configuration", "valid")
    own_engine = (machine.memory, machine.model, machine.engine, machine.trainer)
    upstream = (network.upstream, network.engine)
    engine = upstream if config.upstream else own_engine
    for check in (machine.data_dir, machine.disk, machine.clock, *engine):
        yield check(config)
    yield from network.proxy(find(url, config), config)
