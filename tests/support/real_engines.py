"""A real vLLM and mlx_lm.server on a port of 127.0.0.1, in the environments that scripts/engines makes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from burnish.adapters.convert.peft import read_tensors
from tests.support.llama_server import boot, end, free_port

Booted = AbstractContextManager[str]
"""Gives the URL."""
ENGINES = Path(__file__).parents[2] / ".engines"
VLLM_PYTHON = ENGINES / "vllm" / "bin" / "python"
MLX_PYTHON = ENGINES / "mlx" / "bin" / "python"
LITELLM_PYTHON = ENGINES / "litellm" / "bin" / "python"
VLLM_ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
MLX_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def needs(engine: str) -> pytest.MarkDecorator:
    """Skip a test whose engine isn't installed."""
    absent = not (ENGINES / engine / "bin" / "python").exists()
    return pytest.mark.skipif(absent, reason=f"SKIPPED: no .engines/{engine}; run scripts/engines {engine}")


VLLM_OPTIONS = ("--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager")
"""What a small machine without a GPU needs."""


def vllm_server(weights: Path, name: str, max_rank: int, log: Path, *, max_loras: int = 2) -> Booted:
    """Boot vLLM in float32 on a Hugging Face directory; gives its URL. ``max_loras``: adapters in one batch."""
    command = [
        *(str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"),
        *("--model", str(weights), "--served-model-name", name, *VLLM_OPTIONS),
        *("--enable-lora", "--max-loras", str(max_loras), "--max-cpu-loras", "4"),
        *("--max-lora-rank", str(max_rank)),
    ]
    return _booted(command, VLLM_ENVIRONMENT, "/v1/models", log)


def mlx_server(base: Path, hub: Path, log: Path) -> Booted:
    """Boot mlx_lm.server on a Hugging Face directory, with its own place for the hub's cache; gives its URL."""
    command = [str(MLX_PYTHON), "-m", "mlx_lm", "server", "--model", str(base)]
    return _booted(command, MLX_ENVIRONMENT | {"HF_HUB_CACHE": str(hub)}, "/health", log)


def mlx_base(weights: Path, target: Path) -> Path:
    """Copy a Hugging Face directory of transformers 5 so that MLX reads it right, and in float32.

    mlx-lm computes in whatever the weights are stored in, and does not look into rope_parameters.
    """
    target.mkdir()
    for path in weights.iterdir():
        if path.suffix != ".safetensors" and not path.name.startswith("."):
            shutil.copy(path, target)
    save_file(read_tensors(weights / "model.safetensors"), target / "model.safetensors", {"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    config |= {"rope_theta": config["rope_parameters"]["rope_theta"], "dtype": "float32"}
    (target / "config.json").write_text(json.dumps(config))
    return target


@contextmanager
def _booted(command: Sequence[str], environment: Mapping[str, str], ready: str, log: Path) -> Iterator[str]:
    """Run a server until the block is left; ``ready`` is a path that it answers once it is up."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = boot([*command, "--port", str(port)], environment, url + ready, log)
    try:
        yield url
    finally:
        end(server)
