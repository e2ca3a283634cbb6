"""Checks of the network: the upstream, a running burnish, the port."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import SecretStr, ValidationError

from burnish.adapters.errors import AdapterError
from burnish.cli.doctor_machine import Finding, Level
from burnish.cli.show import started_engine
from burnish.config.config import Config, is_loopback
from burnish.config.tables import LITELLM
from burnish.learner.foreign_engine import foreign_host
from burnish.learner.managed_engine import recipe_of
from burnish.proxy.cloud import check_installed
from burnish.proxy.data_dir import in_use
from burnish.proxy.http.errors import ConfigError
from burnish.proxy.relay.routing import placed, with_key
from burnish.terminal.client import key_header

ASK_TIMEOUT_S = 5.0
SHOWN_MODELS = 3
MASK = "**********"
"""What burnish shows of a key."""


@dataclass(frozen=True, slots=True)
class RunningProxy:
    config: Config
    """Its keys are masked."""
    status: dict[str, Any]


def running(url: str, own: Config) -> RunningProxy | Finding | None:
    """Ask burnish for its configuration; None if none runs on this machine.

    A finding says that one runs, but doesn't tell.
    """
    if not _is_here(url) or (settings := _get(url, "/burnish/config", own)) is None:
        return None
    if settings.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        text = f"burnish at {url} shows its own only to its key: set BURNISH_ADMIN_KEY or BURNISH_API_KEY"
        return Finding("warn", "configuration", text)
    status = _get(url, "/burnish/status", own)
    if status is None or not settings.is_success:
        return None
    # All masks look alike, but two keys must differ.
    content = {
        name: f"{MASK}{name}" if setting == MASK else setting for name, setting in _json(settings).items()
    }
    try:
        return RunningProxy(Config.model_validate(content), _json(status))
    except ValidationError:
        return None


def _hidden_addresses(url: str, own: Config) -> Iterator[Finding]:
    """Warn of a reverse proxy that names no client: burnish then takes everybody for somebody at its own machine."""
    answer = None if _is_here(url) else _get(url, "/burnish/whoami", own)
    if answer and answer.is_success and _json(answer).get("local") is True:
        yield Finding(
            "warn",
            "reverse proxy",
            f"what answers at {url} doesn't tell burnish who asks, so everybody counts as somebody at its own machine: "
            "have it set X-Forwarded-For (docs/teams.md)",
        )


def behind(config: Config, up: RunningProxy | None) -> Iterator[Finding]:
    """Check the upstream and its engine: what a running burnish knows of them, else what they answer."""
    if up is None:
        yield upstream(config)
        yield engine(config)
        return
    status = up.status.get("engine", {})
    if started := status.get("started"):
        is_up = started["state"] == "up"
        text = started_engine(started) + ("" if is_up else f". {status.get('trouble')}")
        yield Finding("ok" if is_up else "fail", "engine", text)
    yield upstream(config)
    if (obstacle := status.get("obstacle")) is None:
        yield Finding("ok", "engine", f"swaps versions of {config.upstream}, as {status.get('way')}")
    else:
        yield Finding("ok" if config.engine == "none" else "warn", "engine", str(obstacle))


def upstream(config: Config) -> Finding:
    """Check that the upstream and all its replicas answer and speak the OpenAI API."""
    if config.upstream and config.upstream.startswith(LITELLM):
        return _by_litellm(config.upstream, config)
    key = config.upstream_api_key
    findings = [_upstream(url, key, "upstream_api_key") for url in config.upstream_urls]
    worst = min(findings, key=lambda finding: ("fail", "warn", "ok").index(finding.level))
    texts = "; ".join(finding.text for finding in findings)
    return worst if worst.level != "ok" else replace(worst, text=texts)


def further(config: Config, up: RunningProxy | None) -> Iterator[Finding]:
    """Check each further upstream; of a running burnish, return what that knows."""
    if up:
        for state in up.status.get("upstreams", ()):
            answers = f"{state['url']} answers for {', '.join(state['models'])}"
            level: Level = "fail" if state["trouble"] else "ok"
            yield Finding(level, f"upstreams.{state['name']}", state["trouble"] or answers)
        return
    for name, settings in config.upstreams.items():
        if settings.url.startswith(LITELLM):
            finding = _by_litellm(settings.url, config)
        else:
            finding = _upstream(settings.url, settings.api_key, f"api_key in [upstreams.{name}]")
        yield replace(finding, what=f"upstreams.{name}")


def _by_litellm(url: str, config: Config) -> Finding:
    try:
        check_installed(url, config.litellm.python)
    except ConfigError as error:
        return Finding("fail", "upstream", error.message)
    return Finding("ok", "upstream", f"{url}: litellm asks for burnish")


def _upstream(url: str, key: SecretStr | None, setting: str) -> Finding:
    masked = key is not None and key.get_secret_value().startswith(MASK)
    headers = with_key(url, key.get_secret_value()) if key and not masked else []
    try:
        models_url = "".join(placed(url, "/v1/models"))
        answer = httpx.get(models_url, headers=headers, timeout=ASK_TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Finding("fail", "upstream", f"{url} doesn't answer ({error}): check that it is running")
    if answer.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        if masked:
            return Finding("ok", "upstream", f"{url} needs a key, and burnish has one")
        if key:
            return Finding("fail", "upstream", f"{url} refuses the key: mend {setting}")
        return Finding("warn", "upstream", f"{url} needs a key: set {setting}, or have callers send theirs")
    models = _json(answer).get("data")
    if not answer.is_success or not isinstance(models, list):
        return Finding(
            "warn",
            "upstream",
            f"{url} doesn't list its models (/v1/models answered {answer.status_code}): check the URL",
        )
    names = [str(model.get("id")) for model in models[:SHOWN_MODELS] if isinstance(model, dict)]
    remainder = [f"and {len(models) - SHOWN_MODELS} more"] if len(models) > SHOWN_MODELS else []
    return Finding("ok", "upstream", f"{url}: {', '.join(names + remainder) or 'no models'}")


def startable(config: Config) -> Finding:
    """Check that the engine that burnish is to start is installed, and its model there."""
    try:
        recipe = recipe_of(config, fetch=False)
    except AdapterError as error:
        return Finding("fail", "engine", str(error))
    return Finding("ok", "engine", f"`burnish up` starts {recipe.name} with {recipe.weights}")


def engine(config: Config) -> Finding:
    """Check that burnish can swap versions in the upstream."""
    if config.engine == "none":
        text = "engine = none: burnish logs and takes ratings, but doesn't swap versions"
        return Finding("ok", "engine", text)
    try:
        text = asyncio.run(_engine(config))
    except AdapterError as error:
        return Finding("warn", "engine", f"burnish can't swap versions: {error}")
    return Finding("ok", "engine", text)


async def _engine(config: Config) -> str:
    host, weights = await foreign_host(config, versions=tuple, fetch=False)
    try:
        await host.check()
    finally:
        await host.close()
    return f"swaps versions of {host.base_model}, as {host.limits.way}, trained on {weights}"


def proxy(url: str, absent: str, config: Config) -> Iterator[Finding]:
    """Check the running burnish; if there is none (``absent``: why), check that the port is free."""
    if absent:
        yield Finding("ok", "proxy", absent) if in_use(config.data_dir) else _port(config)
        return
    yield from _hidden_addresses(url, config)
    if (answer := _get(url, "/healthz", config)) is None:
        yield _port(config)
        return
    health = _json(answer)
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        yield Finding("warn", "proxy", f"running at {url}, but it needs its key: set BURNISH_API_KEY")
    elif not isinstance(health.get("trouble"), list):
        yield Finding("fail", "proxy", f"another program answers at {url}{holder(url)}: pick another --port")
    else:
        level: Level = "ok" if health["status"] == "ok" else "fail"
        yield Finding(level, "proxy", f"{health['status']} at {url}")
        yield from (Finding("fail", "proxy", str(trouble)) for trouble in health["trouble"])


def _port(config: Config) -> Finding:
    with socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            place = f"{config.host}:{config.port}"
            trouble = f"{place} can't be used ({error.strerror}{holder('http://' + place)})"
            return Finding("fail", "port", f"{trouble}: pick another with --port")
    return Finding("ok", "proxy", f"not running; {config.host}:{config.port} is free: burnish up")


def holder(url: str) -> str:
    """Name the process that listens there; "" if the system doesn't show it."""
    port = httpx.URL(url).port
    if port is None or not shutil.which("lsof"):
        return ""
    command = ["lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    fields = {line[0]: line[1:] for line in listed.stdout.splitlines() if line}
    return f", used by {fields['c']}, process {fields['p']}" if {"c", "p"} <= fields.keys() else ""


def _is_here(url: str) -> bool:
    """Return whether burnish's files are on this machine."""
    try:
        return is_loopback(httpx.URL(url).host)
    except httpx.InvalidURL:
        return False


def _get(url: str, path: str, config: Config) -> httpx.Response | None:
    """Ask a burnish; None if nothing answers."""
    try:
        return httpx.get(url + path, headers=key_header(config), timeout=ASK_TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
