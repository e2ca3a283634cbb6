"""The questions of ``burnish init``, each answered by a flag, the user or its default; and checks of the answers."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args
from urllib.parse import urlsplit

import httpx
import typer
from pydantic import ValidationError
from rich.markup import escape

from burnish.adapters.errors import AdapterError, EngineError, UnknownWeights
from burnish.adapters.hosts.hub import hub_id
from burnish.adapters.hosts.model_file import hub_model, is_for_embedded, model_file
from burnish.cli import doctor_machine, doctor_network
from burnish.cli.engines import EngineOffer, engines_here, larger_model, offers
from burnish.config.config import Config, is_loopback
from burnish.config.model_names import OLLAMA
from burnish.config.tables import LITELLM, TrainConfig
from burnish.learner.foreign_engine import served_weights
from burnish.parts.connect import AGENTS, Home, is_own
from burnish.parts.desktop.init.plan import SetupAnswers, SetupRecord
from burnish.proxy import server_file
from burnish.proxy.plain import plain
from burnish.proxy.relay.routing import placed
from burnish.terminal.client import read_settings
from burnish.terminal.errors import CommandFailed, WrongUsage
from burnish.terminal.terminal import console

Answer = TypeVar("Answer")
EMBEDDED = "embedded"
SMALL = "small"
"""The model that comes with the embedded engine."""
PRESETS = get_args(TrainConfig.model_fields["preset"].annotation)
SHOWN_MODELS = 8
LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Flags:
    agents: str | None = None
    upstream: str | None = None
    model: str | None = None
    preset: str | None = None
    schedule: str | None = None
    port: int | None = None
    service: bool | None = None
    base: str | None = None
    installs: bool | None = None


@dataclass(frozen=True, slots=True)
class Questions:
    flags: Flags
    config: Config
    """The present settings, which are the defaults."""
    earlier: SetupRecord | None
    home: Home
    own_url: str
    """Where burnish runs already; "" if it doesn't."""
    asks: bool
    """Ask the user what no flag answers."""

    def answers(self, *, service_possible: bool) -> SetupAnswers:
        """Raises WrongUsage for a wrong flag, typer.Abort if the user leaves."""
        upstream, model = self._engine()
        flags, train = self.flags, self.config.train
        fast = f"\n[bold]How fast shall it learn?[/] {', '.join(PRESETS)}"
        when = (
            "\n[bold]When may it train?[/] auto (in quiet moments), manual, or a window such as 01:00-06:30"
        )
        return SetupAnswers(
            agents=self._agents(upstream),
            upstream=upstream,
            model=model,
            preset=self._choice(flags.preset, train.preset, fast, "Preset", _read_preset),
            schedule=self._choice(flags.schedule, train.schedule, when, "When", _read_schedule),
            port=self._port(),
            service=service_possible and self._service(),
            base=self._base(upstream, model),
        )

    def _engine(self) -> tuple[str | None, str | None]:
        flags = self.flags
        if flags.upstream is not None:
            upstream = None if flags.upstream == EMBEDDED else _read_url(flags.upstream)
            model = flags.model or (self.config.model if upstream == self.config.upstream else None)
        elif flags.model and (flags.model == SMALL or is_for_embedded(flags.model)):
            upstream, model = None, flags.model
        else:
            offer = self._chosen_engine()
            upstream, model = offer.upstream, flags.model or offer.model
        if upstream is None:
            return None, embedded_model(model) if model and model != SMALL else None
        return upstream, self._model_of(upstream, model)

    def _chosen_engine(self) -> EngineOffer:
        config, options = self.config, []
        if config.upstream:
            options.append(EngineOffer(config.upstream, config.model, f"{config.upstream}, as now"))
        engines = asyncio.run(engines_here())
        sources = (*config.upstream_urls, config.model)
        options += [offer for offer in offers(engines) if (offer.upstream or offer.model) not in sources]
        embedded = EngineOffer(None, None, "the embedded engine with a small model, to try it out")
        if config.model and not config.upstream:
            options.insert(
                0, EngineOffer(None, config.model, f"the embedded engine with {config.model}, as now")
            )
        if (larger := larger_model()) and larger.model != config.model:
            options.append(larger)
        # Who chose the embedded engine before keeps it, whatever else runs by now.
        stays = self.earlier is not None and not (config.upstream or config.model)
        options.insert(0 if stays else len(options), embedded)
        if not self.asks:  # so nobody agrees to a download
            return next(offer for offer in options if offer is not larger)
        console.print("\n[bold]Which engine serves the model?[/]")
        for number, offer in enumerate(options, 1):
            console.print(f"  [cyan]{number}[/]  {escape(offer.words)}")
        console.print("  [dim]or type the URL of another, the path of a GGUF file, or ollama:NAME[/]")
        return _ask("Engine", "1", lambda text: _read_engine(text, options))

    def _model_of(self, upstream: str, model: str | None) -> str | None:
        """Choose among the models of an upstream. A cloud's needn't be chosen: agents name them."""
        if not is_own(upstream):
            return model
        models = models_of(upstream.partition(",")[0])
        if model is not None:
            return _read_model(model, models)
        if len(models) <= 1:
            return None
        if not self.asks:
            return models[0]
        console.print(f"\n[bold]Which of its models shall learn?[/] {escape(_listed(models))}")
        return _ask("Model", plain(models[0]), lambda text: _read_model(text, models))

    def _base(self, upstream: str | None, model: str | None) -> str | None:
        """Choose the weights to train on. The embedded engine trains on its own."""
        present = self.config.train.base
        if self.flags.base is not None:
            return _read_base(self.flags.base)
        if upstream in (None, self.config.upstream) and present:
            return present
        if upstream is None or not is_own(upstream):
            return None
        config = read_settings({"upstream": upstream, "model": model})
        config = config.model_copy(update={"train": config.train.model_copy(update={"base": None})})
        try:
            asyncio.run(served_weights(config, fetch=False))
        except UnknownWeights as error:
            if not self.asks:
                return None
            console.print(f"\n[bold]On which weights may it train?[/] {escape(str(error))}")
            return _ask("File, directory or OWNER/NAME", plain(error.hub_id or "none"), _read_base)
        except AdapterError:
            pass  # the check says why versions can't be swapped
        return None

    def _agents(self, upstream: str | None) -> tuple[str, ...]:
        names = agents_here(self.home)
        if self.flags.agents is not None:
            return _read_agents(self.flags.agents, names)
        # Coding agents send more than the embedded engine reads unless `context` is set.
        default = names if upstream else []
        if self.earlier:
            default = [*self.earlier.agents, *self.earlier.replaced]
        if not self.asks:
            return tuple(default)
        console.print("\n[bold]Which agents shall use burnish?[/]")
        console.print(f"  [dim]found here:[/] {', '.join(names) or 'none'}")
        console.print(
            f"  [dim]burnish also knows:[/] {', '.join(name for name in AGENTS if name not in names)}"
        )
        if upstream is None and names:
            console.print(
                "  [dim]Most coding agents send more tokens than the embedded engine takes by default.[/]"
            )
        return _ask("Names, or none", ", ".join(default) or "none", lambda text: _read_agents(text, names))

    def _choice(
        self, flag: str | None, present: str, question: str, name: str, read: Callable[[str], str]
    ) -> str:
        if flag is not None:
            return read(flag)
        if not self.asks:
            return present
        console.print(question)
        return _ask(name, present, read)

    def _port(self) -> int:
        host, port = self.config.host, self.flags.port or self.config.port
        fault = port_fault(host, port)
        if fault is None or self.own_url.endswith(f":{port}"):
            return port
        another = free_port(host, port)
        if not self.asks or another is None:
            free = f"; {another} is free" if another else ""
            raise CommandFailed(f"{fault}: choose another with --port{free}; nothing was changed")
        console.print(f"\n[yellow]{escape(fault)}[/]")
        return int(_ask("Another port", str(another), lambda text: _read_port(text, host)))

    def _service(self) -> bool:
        if self.flags.service is not None:
            return self.flags.service
        default = self.earlier.service if self.earlier else True
        if not self.asks:
            return default
        console.print("\n[bold]Shall burnish run in the background, from now on and after each login?[/]")
        return typer.confirm("Install it as a service", default=default)


def _ask(question: str, default: str, parse: Callable[[str], Answer]) -> Answer:
    """Ask until the answer is right. Raises typer.Abort if the user leaves."""
    while True:
        text = str(typer.prompt(question, default=default)).strip()
        try:
            return parse(text)
        except CommandFailed as error:
            console.print(f"[yellow]{escape(str(error))}[/]")


def _read_engine(text: str, options: Sequence[EngineOffer]) -> EngineOffer:
    """Raises WrongUsage; CommandFailed if nothing answers there."""
    if text.isdecimal():
        if not 1 <= int(text) <= len(options):
            raise WrongUsage(f"choose a number from 1 to {len(options)}")
        offer = options[int(text) - 1]
    elif text == EMBEDDED:
        offer = EngineOffer(None, None, text)
    elif "://" in text or text.startswith(LITELLM):
        offer = EngineOffer(_read_url(text), None, text)
    else:
        offer = EngineOffer(None, embedded_model(text), text)
    if offer.upstream:
        check_engine(read_settings({"upstream": offer.upstream}))
    return offer


def _read_url(text: str) -> str:
    """Return the URL of an upstream, or of several, as the configuration holds it. Raises WrongUsage."""
    return str(read_settings({"upstream": text}).upstream)


def _read_model(text: str, models: Sequence[str]) -> str:
    # Ollama leaves ":latest" out.
    if not models or text in models or f"{text}:latest" in models or text.startswith("/"):
        return text
    raise WrongUsage(f"the engine serves no model {text!r}; it has: {_listed(models)}")


def _read_base(text: str) -> str | None:
    """Return the setting ``train.base``. Raises WrongUsage."""
    if text == "none":
        return None
    path = Path(text).expanduser().absolute()
    if path.exists():
        return str(path)
    if hub_id(text):
        return text
    raise WrongUsage(
        f"{text!r} is no GGUF file or directory here, and no OWNER/NAME of the Hugging Face hub; none leaves it open"
    )


def _listed(models: Sequence[str]) -> str:
    remainder = f" and {len(models) - SHOWN_MODELS} more" if len(models) > SHOWN_MODELS else ""
    return ", ".join(map(plain, models[:SHOWN_MODELS])) + remainder


def _read_agents(text: str, installed_names: Sequence[str]) -> tuple[str, ...]:
    names = [name for name in re.split(r"[,\s]+", text) if name]
    if names == ["none"]:
        return ()
    if names == ["found"]:
        return tuple(installed_names)
    if unknown := [name for name in names if name not in AGENTS]:
        raise WrongUsage(
            f"{', '.join(map(repr, unknown))}: burnish knows no such agent. It knows {', '.join(AGENTS)}; "
            "found means those installed here, none means none"
        )
    return tuple(name for name in AGENTS if name in names)


def _read_preset(text: str) -> str:
    if text not in PRESETS:
        raise WrongUsage(f"a preset is one of {', '.join(PRESETS)}, not {text!r}")
    return text


def _read_schedule(text: str) -> str:
    try:
        return TrainConfig(schedule=text).schedule
    except ValidationError as error:
        raise WrongUsage(
            f"{text!r} isn't auto, manual or a window of local time such as 01:00-06:30"
        ) from error


def _read_port(text: str, host: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= LAST_PORT:
        raise WrongUsage(f"a port is a number from 1 to {LAST_PORT}, not {text!r}")
    if fault := port_fault(host, int(text)):
        raise WrongUsage(fault)
    return int(text)


# -- checks, before anything is asked or changed -----------------------------------------------------------------------

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
    """Check that the engine can answer; return what may prevent it, if anything does.

    Raises CommandFailed; WrongUsage if it is burnish itself.
    """
    if config.upstream:
        for url in config.upstream_urls:
            if (parts := urlsplit(url)).port == config.port and is_loopback(parts.hostname or ""):
                raise WrongUsage(f"{url} can't be the engine: that is burnish itself")
        finding = doctor_network.upstream(config)
    else:
        finding = doctor_machine.engine(config)
    if finding.level == "fail":
        raise CommandFailed(finding.text)
    return finding.text if finding.level == "warn" else None


def check_versions(config: Config) -> str | None:
    """Return why the engine can't take versions, or what it needs first; None if it can."""
    if config.upstream is None:
        return None
    finding = doctor_network.engine(config)
    return finding.text if finding.level == "warn" else None


def check_trainer(config: Config) -> str | None:
    needed = doctor_machine.trainer(config)
    return f"burnish can't train yet: {needed.text}" if needed.level == "fail" else None


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
