"""Options that ``burnish up`` and ``burnish service install`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from burnish.config.settings import removed
from burnish.terminal.errors import WrongUsage

Host = Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")]
Upstream = Annotated[
    str | None,
    typer.Option(
        help="URL of an OpenAI-compatible server to use instead of the embedded engine. For replicas: all URLs, "
        "separated by commas. Without it, `burnish up` asks if an engine is already running on this machine."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="For the embedded engine: a name from `burnish models`, OWNER/NAME[:QUANTISATION] on the Hugging Face "
        "hub, a GGUF file, or `ollama:NAME` from Ollama's store. With --upstream: the model that `default` stands for. "
        "With --engine: the model to serve."
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        help="Embedded engine: tokens of a request with its answer [4096 to 32768, by the free memory]; at most what "
        "the model was trained for."
    ),
]
Parallel = Annotated[
    int | None, typer.Option(help="Embedded engine: requests that it answers at a time [4].")
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="Start this engine for --model, and keep it running: vllm, mlx (a Hugging Face directory or a model on "
        "the hub) or llama-server (a GGUF file)."
    ),
]
EnginePython = Annotated[
    Path | None, typer.Option(help="With --engine: the Python of the environment that has vLLM or MLX.")
]
EngineArgs = Annotated[
    str | None,
    typer.Option(help='With --engine: its further options in one text, e.g. "--max-model-len 8192".'),
]
DataDir = Annotated[Path | None, typer.Option(help="Directory for the log, versions and jobs.")]
NoTrain = Annotated[bool, typer.Option("--no-train", help="Never train; only forward and log requests.")]
ConfigFile = Annotated[Path | None, typer.Option(help="Configuration file (TOML).")]


def _refuse(option: typer.CallbackParam, text: str | None) -> None:
    if text is not None:
        raise WrongUsage(f"--{option.name}: {removed(str(option.name))}")


Removed = Annotated[str | None, typer.Option(hidden=True, callback=_refuse)]
"""An option that is gone. It's refused with the reason, also in the unit of a service."""
