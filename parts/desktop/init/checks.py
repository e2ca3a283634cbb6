"""Checks of engines, models, agents and the port before ``burnish init`` asks or changes anything."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httpx

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.model_file import hub_model, model_file
from burnish.cli import doctor_machine, doctor_network
from burnish.config.config import Config, is_loopback
from burnish.config.engines import OLLAMA
from burnish.parts.connect import AGENTS, Home
from burnish.proxy import server_file
from burnish.proxy.relay.routing import placed
from burnish.terminal.errors import CommandFailed, WrongUsage

LIST_LIMIT_S = 5.0
PORTS_TRIED = 20


def agents_here(home: Home) -> list[str]:
    """Return the names of the agents that are installed and can be connected."""
    return [name for name, agent in AGENTS.items() if agent.installed(home)]


def models_of(url: str) -> list[str]:
    """Return the models that an upstream lists, without versions of burnish; none if it doesn't tell."""
    try:
        answer = httpx.get("".join(placed(url, "/v1/models")), timeout=LIST_LIMIT_S, trust_env=False)
        names = [str(model["id"]) for model in answer.json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
        return []
    return [name for name in names if "@v" not in name and "-burnish:" not in name]


def check_engine(config: Config) -> str | None:
    """Check that the engine can answer; return what is still missing for training, if anything is.

    Raises CommandFailed; WrongUsage if it is burnish itself.
    """
    if config.upstream:
        for url in config.upstream_urls:
            if (parts := urlsplit(url)).port == config.port and is_loopback(parts.hostname or ""):
                raise WrongUsage(f"{url} can't be the engine: that is burnish itself")
        finding = doctor_network.upstream(config)
        needed = None
    else:
        finding, needed = doctor_machine.engine(config), doctor_machine.trainer(config)
    if finding.level == "fail":
        raise CommandFailed(finding.text)
    if finding.level == "warn":
        return finding.text
    return f"burnish can't train yet: {needed.text}" if needed and needed.level == "fail" else None


def embedded_model(text: str) -> str:
    """Return the setting ``model`` for a GGUF file, or for a model of Ollama or of the hub. Raises WrongUsage."""
    if hub_model(text):
        return text  # downloaded when burnish starts
    try:
        file = model_file(text)
    except EngineError as error:
        raise WrongUsage(f"{error} (here: `--model small`)") from error
    return text if text.startswith(OLLAMA) else str(file.path)


def port_fault(host: str, port: int) -> str | None:
    """Return why burnish can't listen on a port, as part of a sentence; None if it can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            holder = doctor_network.holder(f"http://{host}:{port}")
            return f"port {port} can't be used ({error.strerror}{holder})"
    return None


def free_port(host: str, above: int) -> int | None:
    """Return the next free port, if there is one nearby."""
    ports = range(above + 1, min(above + 1 + PORTS_TRIED, 65536))
    return next((port for port in ports if port_fault(host, port) is None), None)


def running_here(config: Config) -> str:
    """Return the URL of the burnish that runs with this data directory; "" if none does. Raises ConfigError."""
    server = server_file.running(config)
    return server.url if server else ""
