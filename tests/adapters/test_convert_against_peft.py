"""What is served is what was trained: llama.cpp with the converted adapter against transformers + peft."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from numpy.typing import NDArray

from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import cache_dir
from tests.support.engine import headers
from tests.support.lora import random_lora, version_of, write_peft
from tests.support.openings import OPENINGS

TOP = 20
Logprobs = dict[int, float]


async def engine_logprobs(endpoint: Endpoint, tokens: list[int]) -> Logprobs:
    """Log-probabilities of the likeliest next tokens."""
    body = {"prompt": tokens, "n_predict": 1, "temperature": 0, "n_probs": TOP, "cache_prompt": False}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{endpoint.url}/completion", json=body, headers=headers(endpoint)) as response,
    ):
        found = (await response.json())["completion_probabilities"][0]["top_logprobs"]
    return {each["id"]: each["logprob"] for each in found}


def distance(engine: Logprobs, reference: NDArray[np.float32]) -> float:
    """Mean absolute difference (nats) over the engine's likeliest tokens."""
    return float(np.mean([abs(value - reference[token]) for token, value in engine.items()]))


# peft 0.21 asks transformers 5.23 for an attribute under its old name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "strength", "config"),
    [
        ("", 0.2, {}),
        ("", 0.1, {"use_rslora": True}),
        (r"[qk]_proj", 1.0, {"target_modules": ["q_proj", "k_proj"]}),
    ],
    ids=["all layers", "rslora", "q and k, whose rows move"],
)
async def test_the_engine_answers_as_peft_does(
    host: EmbeddedHost, tmp_path: Path, modules: str, strength: float, config: dict[str, object]
) -> None:
    torch = pytest.importorskip("torch")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from burnish.adapters.hosts.fetch import ensure_small_model
    from burnish.training.weights import prepared_weights

    torch.set_num_threads(1)
    directory = prepared_weights(ensure_small_model(), host.base_digest, cache_dir() / "weights")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    bare = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    prompts = [tokenizer(prompt, add_special_tokens=False).input_ids for prompt in OPENINGS]

    def logprobs(model: Callable[..., object]) -> list[NDArray[np.float32]]:
        with torch.inference_mode():
            return [
                model(torch.tensor([ids])).logits[0, -1].float().log_softmax(-1).numpy() for ids in prompts
            ]

    without = logprobs(bare)
    tensors = {name: t for name, t in random_lora(7, strength=strength).items() if re.search(modules, name)}
    adapter = write_peft(tmp_path / "peft", tensors, **config)
    endpoint = await host.load(version_of(adapter, 7, host.base_digest))
    engine = [await engine_logprobs(endpoint, ids) for ids in prompts]
    trained = logprobs(PeftModel.from_pretrained(bare, adapter))

    far = np.mean([distance(a, b) for a, b in zip(engine, without, strict=True)])
    near = np.mean([distance(a, b) for a, b in zip(engine, trained, strict=True)])
    assert far > 0.5, "the adapter does something"
    # llama.cpp rounds activations to 8 bits; that alone moves log-probabilities by about 0.1.
    assert near < 0.25
    assert near < far / 4
    agree = [
        max(a, key=lambda token: a[token]) == int(b.argmax()) for a, b in zip(engine, trained, strict=True)
    ]
    assert sum(agree) >= len(OPENINGS) - 1
