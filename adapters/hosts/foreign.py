"""The right host for an engine that somebody else runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.hosts.detect import Detected, weights_digest
from burnish.adapters.hosts.llamacpp import LlamaCppHost
from burnish.adapters.hosts.llamacpp_given import LlamaCppGivenHost
from burnish.adapters.hosts.mlx import MlxHost
from burnish.adapters.hosts.named_lora import NamedLoraHost
from burnish.adapters.hosts.ollama import OllamaHost
from burnish.adapters.hosts.sglang import SglangHost
from burnish.adapters.hosts.vllm import VllmHost
from burnish.adapters.manifest import AdapterVersion


def open_host(
    found: Detected,
    api: EngineApi,
    weights: Path,
    *,
    versions: Callable[[], Sequence[AdapterVersion]],
    state_dir: Path,
    preset: Path | None,
) -> AdapterHost:
    """Return the host of a detected engine; nothing is asked of it yet.

    ``weights``: base weights on this machine; ``state_dir`` keeps converted adapters; ``preset`` is the file of
    llama-server's --models-preset. Raises EngineError, which says what is missing, when versions cannot be swapped.
    """
    if found.kind == "other":
        raise EngineError(f"{api.url} is no engine that burnish can load versions into")
    if not weights.exists():
        raise EngineError(
            f"train.base {weights} does not exist; name the GGUF file or Hugging Face directory that the engine serves"
        )
    own: dict[str, Any] = {
        "base_digest": weights_digest(weights),
        "versions": versions,
        "api_key": api.api_key,
    }
    if named_lora := _NAMED_LORA.get(found.kind):
        return named_lora(api.url, base_model=found.model, **own)
    own |= {"base_path": weights, "state_dir": state_dir}
    if found.kind == "mlx":
        if weights.resolve() != Path(found.model):
            raise EngineError(
                f"train.base is {weights}, MLX serves {found.model}; leave train.base unset, or start MLX with that"
            )
        return MlxHost(api.url, **(own | {"base_path": Path(found.model)}))
    _demand_gguf(weights)
    if found.kind == "ollama":
        return OllamaHost(api.url, base_model=found.model, **own)
    if preset:
        return LlamaCppHost(api.url, base_model=found.model, preset=preset, **own)
    return LlamaCppGivenHost(api.url, base_model=found.model, **own)


def _demand_gguf(weights: Path) -> None:
    if weights.suffix != ".gguf" and not weights.name.startswith("sha256-"):  # Ollama's blobs have no suffix
        raise EngineError(f"train.base {weights} is no GGUF file; name the one that the engine serves")


_NAMED_LORA: dict[str, type[NamedLoraHost]] = {"vllm": VllmHost, "sglang": SglangHost}
