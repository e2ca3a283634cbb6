"""One llama.cpp server, serving one version. Run as ``python -m burnish.adapters.hosts.embedded_child``.

Reads one line of JSON (``EngineSettings``) from stdin, converts the adapter if need be, and starts the server on a free
port of 127.0.0.1. Then it prints one line of JSON: ``{"url"}`` or ``{"error", "message"}``. Stdin stays open: when it
closes, because the parent ended in whatever way, this process ends at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from burnish.adapters.errors import AdapterError, EngineError
from burnish.system.extras import how_to_repair
from burnish.system.parent import end_with_parent

# Every open connection holds one of llama.cpp's HTTP threads, idle ones too; health checks must get one.
HTTP_THREADS = 128
# Only warnings and errors: the log must not grow with the traffic.
LOG_LEVEL = 1


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The parent's line on stdin: others could read the key in arguments or the environment."""

    model: str
    """Path of the base GGUF."""
    name: str
    """Served name."""
    api_key: str
    threads: int
    context: int
    """Tokens of one request."""
    parallel: int
    """Requests that are decoded together."""
    adapter: str | None
    """PEFT directory, None = the base model."""
    converted: str | None
    """Path of the adapter's GGUF, which may not exist yet."""
    sampling: Mapping[str, float]
    """As of ``catalogue.Model``."""


def main() -> NoReturn:
    # Ctrl-C reaches the whole terminal group, but requests under way must end before the engine does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = EngineSettings(**json.loads(sys.stdin.buffer.readline()))
    # Not sys.exit: llama.cpp's threads may be in the middle of a token, and there is nothing to save.
    end_with_parent(lambda: os._exit(0))
    try:
        server = serve(settings)
    except AdapterError as error:
        _print({"error": type(error).__name__, "message": str(error)})
        os._exit(1)
    _print({"url": server.listening_address})
    threading.Event().wait()
    raise AssertionError("unreachable: only the lifeline ends this process")


def serve(settings: EngineSettings) -> Any:
    """Start the server and return it. Raises CorruptAdapter, IncompatibleAdapter, EngineError."""
    try:
        import xllamacpp
    except ImportError as error:
        raise EngineError(
            f"the embedded engine does not load ({error}); {how_to_repair(str(error))}"
        ) from error
    parameters = _parameters(xllamacpp, settings)
    if settings.adapter and settings.converted:
        if not Path(settings.converted).exists():
            # Imported here: numpy is half of what a start costs, and most starts have nothing to convert.
            from burnish.adapters.hosts.converted import convert_once

            convert_once(
                Path(settings.adapter), Path(settings.model), Path(settings.converted), settings.name
            )
        parameters.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(settings.converted, 1.0)]
    try:
        return xllamacpp.Server(parameters)
    except (RuntimeError, ValueError, MemoryError) as error:
        if settings.converted:
            # If it was damaged, the next start converts again.
            Path(settings.converted).unlink(missing_ok=True)
        raise EngineError(f"llama.cpp cannot load {settings.model}: {error}") from error


def _parameters(xllamacpp: Any, settings: EngineSettings) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings.model
    parameters.model_alias = {settings.name}
    parameters.api_keys = [settings.api_key]
    parameters.hostnames = ["127.0.0.1"]
    parameters.cors_origins = ""
    for cpu in (parameters.cpuparams, parameters.cpuparams_batch):
        cpu.n_threads = settings.threads
        cpu.poll = 0  # spinning threads starve everything else on a small machine
    parameters.n_parallel = settings.parallel
    # A unified cache would let one long request make the others fail when it is full.
    parameters.kv_unified = False
    parameters.n_ctx = settings.parallel * settings.context
    parameters.warmup = False  # the probe warms it up, and no version goes live without one
    parameters.fit_params = False  # keep the size above; measuring would slow down the start
    parameters.cache_ram_mib = 0  # gigabytes otherwise; each slot's own prompt cache is enough
    parameters.n_threads_http = HTTP_THREADS
    parameters.use_jinja = True
    for name, amount in settings.sampling.items():
        setattr(parameters.sampling, {"temperature": "temp"}.get(name, name), amount)
    for feature in ("ui", "endpoint_slots", "endpoint_props", "endpoint_metrics"):
        setattr(parameters, feature, False)
    parameters.verbosity = LOG_LEVEL
    return parameters


def _print(line: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
