"""Every architecture on the real llama-server: base and adapter answer as transformers + peft do, in fp32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import read_base
from tests.support.llama_server import LlamaServer
from tests.support.lora import write_peft
from tests.support.tiny_gguf import Shape, tiny_lora

pytest.importorskip("torch")

TOP = 20
TOKENS = 12
PROMPTS = (list(range(1000, 1012)), [5, 40000, 17, 17, 350, 28], [12345, 7, 999, 4321, 30000, 2, 801])
# Largest difference of a log-probability, in nats. Measured: 1e-5 to 9e-5.
TOLERANCE = 1e-3
# Measured: 2e-3, since llama.cpp looks GELU up in a table of 16-bit values.
GELU_TOLERANCE = 1e-2
# What an adapter moves them by, at least.
MOVED = 1.0

pytestmark = [
    pytest.mark.slow,
    # peft 0.21 asks transformers 5.23 for an attribute under its old name.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning"),
]
Logprobs = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Step:
    """One greedy token of the engine."""

    token: int
    top: dict[int, float]
    """The likeliest tokens, with their log-probabilities in nats."""


def served(server: LlamaServer, prompt: list[int], scale: float) -> list[Step]:
    body = {
        "prompt": prompt,
        "n_predict": TOKENS,
        "temperature": 0,
        "n_probs": TOP,
        "cache_prompt": False,
        "lora": [{"id": 0, "scale": scale}],
    }
    response = httpx.post(f"{server.url}/completion", json=body, timeout=60)
    found = response.raise_for_status().json()["completion_probabilities"]
    return [Step(each["id"], {top["id"]: top["logprob"] for top in each["top_logprobs"]}) for each in found]


def distance(engine: list[Step], reference: list[Logprobs]) -> float:
    """Largest difference of a log-probability."""
    pairs = zip(engine, reference, strict=True)
    return max(abs(value - logprobs[token]) for step, logprobs in pairs for token, value in step.top.items())


def adapter_of(path: Path, shape: Shape) -> Path:
    modules = sorted({name.rpartition(".")[2] for name in shape.modules})
    return write_peft(path, tiny_lora(shape, 2), lora_alpha=6, target_modules=modules)


@pytest.mark.parametrize(
    "name", ["llama", "mistral", "mistral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3"]
)
def test_the_engine_answers_as_peft_does(name: str, tmp_path: Path) -> None:
    import transformers
    from peft import PeftModel

    from tests.support.tiny_models import steps, tiny_base, tiny_model, tiny_shape

    mistral = name.startswith("mistral")
    # An output of its own, where the architecture has that, so that it can be adapted, too.
    tied = name in ("llama", "gemma", "gemma2", "gemma3")
    shape = tiny_shape("llama" if name == "mistral" else name, tied=tied)
    model = tiny_model(shape, transformers.MistralConfig if mistral else None)
    base = tiny_base(tmp_path / "base.gguf", shape, model)
    adapter = adapter_of(tmp_path / "peft", shape)
    to_gguf(adapter, read_base(base), tmp_path / "lora.gguf")

    without = [steps(model, prompt, TOKENS) for prompt in PROMPTS]
    tuned = PeftModel.from_pretrained(model, adapter).eval()
    trained = [steps(tuned, prompt, TOKENS) for prompt in PROMPTS]
    files = ["-m", str(base), "--lora", str(tmp_path / "lora.gguf")]
    exact = ["-c", "512", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "--cache-ram", "0"]
    tolerance = GELU_TOLERANCE if name.startswith("gemma") else TOLERANCE
    with LlamaServer([*files, *exact], tmp_path / "log") as server:
        for scale, answers in ((0.0, without), (1.0, trained)):
            for prompt, reference in zip(PROMPTS, answers, strict=True):
                engine = served(server, prompt, scale)
                assert [step.token for step in engine] == [int(logprobs.argmax()) for logprobs in reference]
                assert distance(engine, reference) < tolerance
    for before, after in zip(without, trained, strict=True):
        assert np.abs(before[0] - after[0]).max() > MOVED, "the adapter does something"
