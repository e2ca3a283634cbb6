"""``burnish doctor``: what is wrong with this set-up, and what to do about it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import httpx
from rich.markup import escape

import burnish
from burnish.adapters.errors import AdapterError
from burnish.adapters.hosts.fetch import file_digest, small_model_path
from burnish.proxy.cli.client import find
from burnish.proxy.cli.errors import CommandFailed
from burnish.proxy.cli.terminal import Json, Url, console, print_json
from burnish.proxy.config import Config, load_config
from burnish.proxy.errors import BurnishError
from burnish.proxy.relay.routing import join
from burnish.proxy.serve import prepare_data_dir

Level = Literal["ok", "warn", "fail"]
MARKS = {"ok": "[green]✓[/]", "warn": "[yellow]![/]", "fail": "[red]✗[/]"}

GIB = 1024**3
# The trainer peaks at 2.5 GB with the small model, beside engine and proxy.
MEMORY_NEEDED = 4 * GIB
# Weights for training, a few versions, and a log that grows.
DISK_NEEDED = 2 * GIB
ASK_TIMEOUT_S = 5.0
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    text: str
    """What was found and, unless it is fine, what to do."""


def doctor(url: Url = None, as_json: Json = False) -> None:
    """Say what is wrong with this set-up, with or without a running burnish. Exit code 1 when something fails."""
    findings = list(examine(url))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            console.print(f" {MARKS[finding.level]} {finding.what:<12} {escape(finding.text)}")
    if failed := [finding.what for finding in findings if finding.level == "fail"]:
        raise CommandFailed(f"something has to be mended: {', '.join(failed)}")


def examine(url: str | None) -> Iterator[Finding]:
    """Look at everything; one fault hides no other."""
    yield _python()
    try:
        config = load_config()
    except BurnishError as error:
        yield Finding("fail", "configuration", str(error))
        return
    yield Finding("ok", "configuration", "valid")
    checks: tuple[Callable[[Config], Finding], ...] = (
        (_upstream,) if config.upstream else (_engine, _model, _trainer, _memory)
    )
    for check in (_data_dir, *checks, _disk):
        yield check(config)
    yield from _proxy(find(url, config), config)


def _python() -> Finding:
    text = f"{platform.python_version()}, burnish {burnish.__version__}"
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("ok", "python", text)
    return Finding("fail", "python", f"{text}: install Python 3.11 or later")


def _data_dir(config: Config) -> Finding:
    try:
        prepare_data_dir(config.data_dir)
    except BurnishError as error:
        return Finding("fail", "data", str(error))
    return Finding("ok", "data", str(config.data_dir))


def _engine(config: Config) -> Finding:
    return _extra("engine", "engine", ("xllamacpp", "gguf"))


def _trainer(config: Config) -> Finding:
    if not config.train.enabled:
        return Finding("ok", "training", "switched off")
    return _extra("training", "train", ("torch", "transformers", "peft", "gguf"))


def _extra(what: str, extra: str, modules: tuple[str, ...]) -> Finding:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("fail", what, f'{", ".join(missing)} not installed: pip install "burnish[{extra}]"')
    return Finding("ok", what, f"{', '.join(modules)} installed")


def _model(config: Config) -> Finding:
    path = Path(config.model).expanduser() if config.model else small_model_path()
    if not path.is_file():
        if config.model:
            return Finding("fail", "model", f"there is no {path}: name a GGUF file that exists")
        return Finding("warn", "model", "the small model (98 MB) is not here yet: `burnish up` fetches it")
    try:
        return Finding("ok", "model", f"{path.name}, {file_digest(path)[:19]}…")
    except AdapterError as error:
        return Finding("fail", "model", str(error))


def _memory(config: Config) -> Finding:
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return Finding("ok", "memory", "cannot be told on this system; training takes up to 2.5 GB")
    text = f"{free / GIB:.1f} GiB free"
    if free >= MEMORY_NEEDED:
        return Finding("ok", "memory", text)
    return Finding(
        "warn", "memory", f"{text}; training with the small model takes 2.5 GB: close something first"
    )


def _disk(config: Config) -> Finding:
    existing = next(path for path in (config.data_dir, *config.data_dir.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / GIB:.1f} GiB free for {config.data_dir}"
    if free >= DISK_NEEDED:
        return Finding("ok", "disk", text)
    return Finding("warn", "disk", f"{text}; make room, or set data_dir to a larger disk")


def _upstream(config: Config) -> Finding:
    assert config.upstream is not None
    key = config.upstream_api_key
    headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    try:
        answer = httpx.get(join(config.upstream, "/v1/models"), headers=headers, timeout=ASK_TIMEOUT_S)
    except httpx.HTTPError as error:
        return Finding("fail", "upstream", f"{config.upstream} does not answer ({error}): is it running?")
    if answer.status_code in (401, 403):
        return Finding(
            "warn", "upstream", f"{config.upstream} wants a key: callers send theirs, or set upstream_api_key"
        )
    if answer.is_error:
        return Finding(
            "warn",
            "upstream",
            f"{config.upstream} answers {answer.status_code} to /v1/models: is the URL right?",
        )
    return Finding("ok", "upstream", config.upstream)


def _proxy(url: str, config: Config) -> Iterator[Finding]:
    try:
        answer = httpx.get(url + "/healthz", timeout=ASK_TIMEOUT_S)
        health = answer.json()
    except (httpx.HTTPError, ValueError):
        yield _port(config)
        return
    level: Level = "ok" if health.get("status") == "ok" else "fail"
    yield Finding(level, "proxy", f"{health.get('status', 'unknown')} at {url}")
    for trouble in health.get("trouble", ()):
        yield Finding("fail", "proxy", str(trouble))


def _port(config: Config) -> Finding:
    with socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            return Finding(
                "fail",
                "port",
                f"{config.host}:{config.port} is taken ({error.strerror}): pick another with --port",
            )
    return Finding("ok", "proxy", f"not running; {config.host}:{config.port} is free: burnish up")
