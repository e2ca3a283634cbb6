"""Open the right host for an engine that the user runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from burnish.adapters.base_match import demand_same_model
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.hosts.detect import LM_STUDIO, Detected, weights_digest
from burnish.adapters.hosts.llamacpp import LlamaCppHost
from burnish.adapters.hosts.llamacpp_given import LlamaCppGivenHost
from burnish.adapters.hosts.mlx import MlxHost
from burnish.adapters.hosts.model_file import is_gguf
from burnish.adapters.hosts.named_lora import NamedLoraHost
from burnish.adapters.hosts.ollama import OllamaHost
from burnish.adapters.hosts.vllm import SglangHost, VllmHost
from burnish.adapters.manifest import AdapterVersion


def demand_versions(engine: Detected, url: str) -> None:
    """Raise EngineError if versions can't be swapped in this kind of engine."""
    if engine.kind == "lmstudio":
        raise EngineError(LM_STUDIO)
    if not engine.takes_versions:
        raise EngineError(
            f"burnish can't load versions into the server at {url}: it isn't vLLM, SGLang, Ollama, llama.cpp or MLX"
        )


def open_host(
    engine: Detected,
    api: EngineApi,
    weights: Path,
    *,
    versions: Callable[[], Sequence[AdapterVersion]],
    state_dir: Path,
    preset: Path | None,
) -> AdapterHost:
    """Return the host of a detected engine; nothing is asked of it yet.

    ``weights``: base weights on this machine; ``state_dir``: for converted adapters; ``preset``: the file of
    llama-server's --models-preset. Raises EngineError, which says what is missing, if versions can't be swapped;
    IncompatibleAdapter if the engine serves another model.
    """
    if not weights.exists():
        raise EngineError(
            f"train.base {weights} does not exist; expected a GGUF file, a Hugging Face directory or a model on the hub"
        )
    if engine.weights is not None:
        demand_same_model(engine.weights, weights)
    own: dict[str, Any] = {
        "base_digest": weights_digest(weights),
        "versions": versions,
        "api_key": api.api_key,
    }
    if named_lora := _NAMED_LORA.get(engine.kind):
        return named_lora(api.url, base_model=engine.model, **own)
    own |= {"base_path": weights, "state_dir": state_dir}
    if engine.kind == "mlx":
        if weights.resolve() != Path(engine.model):
            raise EngineError(
                f"train.base is {weights}, but MLX serves {engine.model}; leave train.base unset, or set it to that"
            )
        return MlxHost(api.url, **(own | {"base_path": Path(engine.model)}))
    own["base_path"] = _gguf(engine, weights)
    if engine.kind == "ollama":
        return OllamaHost(api.url, base_model=engine.model, **own)
    if preset:
        return LlamaCppHost(api.url, base_model=engine.model, preset=preset, **own)
    return LlamaCppGivenHost(api.url, base_model=engine.model, **own)


def _gguf(engine: Detected, weights: Path) -> Path:
    """Return the GGUF to convert adapters for: the one to train on, else the one that is served."""
    for path in (weights, engine.weights):
        if path is not None and is_gguf(path):
            return path
    raise EngineError(
        f"train.base {weights} isn't a GGUF file, and the engine doesn't tell the path of its own; expected the GGUF "
        "file that the engine serves"
    )


_NAMED_LORA: dict[str, type[NamedLoraHost]] = {"vllm": VllmHost, "sglang": SglangHost}
