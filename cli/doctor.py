"""``burnish doctor``: check this set-up, and say how to fix each fault."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

import burnish
from burnish.adapters.errors import AdapterError
from burnish.adapters.registry import Registry
from burnish.cli import doctor_machine as machine
from burnish.cli import doctor_network as network
from burnish.cli.doctor_machine import Finding
from burnish.cli.train import prompts_compared
from burnish.config.config import Config, default_config_file
from burnish.proxy.log import files
from burnish.proxy.surfaces.ends import end_of
from burnish.terminal.client import find, read_settings
from burnish.terminal.errors import CommandFailed, WrongUsage
from burnish.terminal.terminal import Json, Url, console, printed_json
from burnish.training.job import latest_prompts

LATEST = 1000
"""Answers whose ends are looked at."""
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
            line = f" {MARKS[finding.level]} {finding.what:<13} {escape(finding.text)}"
            console.print(line, soft_wrap=True)
    printed_json([asdict(finding) for finding in findings], as_json)
    if failed := [finding.what for finding in findings if finding.level == "fail"]:
        raise CommandFailed(f"fix these first: {', '.join(failed)}")


def examine(url: str | None, *, deep: bool) -> Iterator[Finding]:
    """Run every check, whatever the others find."""
    yield Finding("ok", "python", f"{platform.python_version()}, burnish {burnish.__version__}")
    try:
        own = config = read_settings()
        address, absent = find(url, own)
    except WrongUsage as error:
        yield Finding("fail", "configuration", str(error))
        return
    file = default_config_file()
    yield Finding("ok", "configuration", f"valid ({file if file.is_file() else f'there is no {file}'})")
    running = None if absent else network.running(address, own)
    up = running if isinstance(running, network.RunningProxy) else None
    if isinstance(running, Finding):
        yield running
    elif up:
        config = up.config
        yield Finding("ok", "configuration", f"from here on, that of burnish at {address}")
        yield Finding("ok", "data", f"{config.data_dir}, in use")
    else:
        yield machine.data_dir(config)
    yield machine.disk(config)
    yield machine.clock(config)
    if config.upstream:
        yield from network.behind(config, up)
    elif config.managed:
        yield from (machine.memory(config), network.startable(config), machine.trainer(config))
    else:
        yield from (machine.memory(config), machine.model(config))
        yield from (machine.engine(config), machine.trainer(config))
    yield from _prompts(config)
    if config.signals.enabled:
        yield Finding("ok", "signals", "on: results of coding agents' tools rate their turns")
    yield from network.further(config, up)
    yield from _unknown_ends(config)
    if deep:
        yield _log(config)
        yield from _versions(config)
    yield from network.proxy(address, absent, own)


def _unknown_ends(config: Config) -> Iterator[Finding]:
    """Name the reasons for which answers ended that burnish doesn't know."""
    if not config.log_file.is_file():
        return
    try:
        with closing(files.connect(config.log_file, read_only=True)) as database:
            ends = database.execute(
                """SELECT finish_reason, count(*) FROM (
                    SELECT finish_reason FROM completion WHERE outcome = 'complete' ORDER BY n DESC LIMIT ?
                ) WHERE finish_reason IS NOT NULL GROUP BY finish_reason""",
                (LATEST,),
            ).fetchall()
    except sqlite3.Error:
        return  # the log of another version, or a damaged one: see --deep
    unknown = [f"{count} × {reason!r}" for reason, count in ends if end_of(reason) == "unknown"]
    if unknown:
        text = (
            f"of the last {LATEST}, some ended for a reason that burnish doesn't know: {', '.join(unknown)}. They "
            "teach nothing; if the engine calls a whole answer so, report it"
        )
        yield Finding("warn", "answers", text)


def _log(config: Config) -> Finding:
    """Compare every text of the log with its digest."""
    path = config.log_file
    if not path.is_file():
        return Finding("ok", "log", "empty")
    try:
        with closing(files.connect(path, read_only=True)) as database:
            report = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
            damaged, compared = files.damaged_texts(database, all_of_them=True)
    except sqlite3.Error as error:
        report, damaged, compared = str(error), 0, 0
    if report != "ok":
        return Finding("fail", "log", f"{path} is damaged ({report}): put a backup in its place")
    if damaged:
        text = f"{damaged} of {compared} texts in {path} are damaged; a backup has them whole"
        return Finding("fail", "log", text)
    return Finding("ok", "log", f"sound, with {compared} texts as they were stored")


def _prompts(config: Config) -> Iterator[Finding]:
    """Say whether the latest run could teach what the engine read."""
    prompts = latest_prompts(config.data_dir / "jobs")
    if prompts and (text := prompts_compared(prompts.model_dump())):
        remedy = (
            ": compare the chat template of the engine with that of train.base, and its default system prompt"
        )
        yield Finding(
            "warn" if prompts.different else "ok", "prompts", text + remedy * bool(prompts.different)
        )


def _versions(config: Config) -> Iterator[Finding]:
    registry = Registry(config.data_dir / "adapters")
    sound = damaged = 0
    try:
        for version in registry.versions():
            if version.state == "pruned":
                continue
            try:
                registry.verify(version.number)
                sound += 1
            except (AdapterError, OSError) as error:
                damaged += 1
                yield Finding("fail", f"v{version.number}", str(error))
    except AdapterError as error:
        yield Finding("fail", "versions", str(error))
        return
    yield Finding("fail" if damaged else "ok", "versions", f"{sound} sound, {damaged} damaged")
