"""What is served is what was trained: the real llama.cpp answers as transformers + peft do, in fp32."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import read_base
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, cache_dir, ensure_small_model
from tests.support.engine import OPENINGS, headers
from tests.support.llama_server import LlamaServer
from tests.support.lora import random_lora, version_of, write_peft
from tests.support.patience import within
from tests.support.tiny_gguf import Shape, of_model, tiny_lora, words

pytest.importorskip("torch")

TOP = 20
TOKENS = 6
PROMPTS = (list(range(1000, 1012)), [5, 2000, 17, 17, 350, 28], [1234, 7, 999, 432, 1999, 2, 801])
EXACT = ["-c", "1024", "-np", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "--cache-ram", "0"]
# Largest difference of a log-probability, in nats. Measured: 1e-5 to 9e-5.
TOLERANCE = 1e-3
# Measured: 2e-3, since llama.cpp looks GELU up in a table of 16-bit values.
GELU_TOLERANCE = 1e-2
# What an adapter moves them by, at least.
MOVED = 1.0

SMALL = Shape("llama", heads=9, kv_heads=3, head_dim=64, hidden=576, ffn=1536, blocks=30, vocabulary=49152)
# What the file of the small model says, where a tiny model says something else.
KEYS = {"rope.freq_base": 100000.0, "attention.layer_norm_rms_epsilon": 1e-5, "context_length": 8192}

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


def served(server: LlamaServer, prompt: list[int], scales: Sequence[float]) -> list[Step]:
    """A greedy answer, with the server's adapters at these scales."""
    body: dict[str, Any] = {"prompt": prompt, "n_predict": TOKENS, "n_probs": TOP, "temperature": 0}
    adapters = [{"id": place, "scale": scale} for place, scale in enumerate(scales)]
    body |= {"cache_prompt": False, "lora": adapters}
    response = httpx.post(f"{server.url}/completion", json=body, timeout=within(120))
    found = response.raise_for_status().json()["completion_probabilities"]
    return [Step(each["id"], {top["id"]: top["logprob"] for top in each["top_logprobs"]}) for each in found]


def distance(engine: list[Step], reference: list[Logprobs]) -> float:
    """Largest difference of a log-probability."""
    pairs = zip(engine, reference, strict=True)
    return max(abs(value - logprobs[token]) for step, logprobs in pairs for token, value in step.top.items())


def adapter_of(path: Path, shape: Shape, modules: str, **config: Any) -> Path:
    """A LoRA on the linear layers that match ``modules``."""
    tensors = {name: each for name, each in tiny_lora(shape, 2).items() if re.search(modules, name)}
    names = {module.rpartition(".")[2] for module in shape.modules if re.search(modules, module)}
    return write_peft(path, tensors, lora_alpha=6, target_modules=sorted(names), **config)


PLAIN: tuple[str, dict[str, Any]] = ("", {})
"""An adapter of every linear layer."""


@pytest.mark.parametrize(
    ("name", "loras"),
    [
        ("llama", (PLAIN, ("[qk]_proj", {"use_rslora": True}))),
        *(
            (name, (PLAIN,))
            for name in ("mistral", "mistral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3")
        ),
    ],
)
def test_every_architecture_answers_as_peft_does(
    name: str, loras: Sequence[tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    import transformers
    from peft import PeftModel

    from tests.support.tiny_models import steps, tiny_base, tiny_model, tiny_shape

    mistral = name.startswith("mistral")
    # An output of its own, where the architecture has that, so that it can be adapted, too.
    tied = name in ("llama", "gemma", "gemma2", "gemma3")
    shape = tiny_shape("llama" if name == "mistral" else name, tied=tied)
    model = tiny_model(shape, transformers.MistralConfig if mistral else None)
    base = tiny_base(tmp_path / "base.gguf", shape, model)
    layout = read_base(base)
    converted = [tmp_path / f"{place}.gguf" for place in range(len(loras))]
    # By the scales of the adapters: none of them, then each for itself.
    answers = {(0.0,) * len(loras): [steps(model, prompt, TOKENS) for prompt in PROMPTS]}
    for place, ((modules, config), target) in enumerate(zip(loras, converted, strict=True)):
        adapter = adapter_of(tmp_path / f"peft-{place}", shape, modules, **config)
        to_gguf(adapter, layout, target)
        tuned = PeftModel.from_pretrained(model, adapter).eval()
        scales = tuple(float(each == place) for each in range(len(loras)))
        answers[scales] = [steps(tuned, prompt, TOKENS) for prompt in PROMPTS]
        model = tuned.unload()

    tolerance = GELU_TOLERANCE if name.startswith("gemma") else TOLERANCE
    arguments = ["-m", str(base), "--lora", ",".join(map(str, converted)), *EXACT]
    with LlamaServer(arguments, tmp_path / "log") as server:
        for scales, references in answers.items():
            for prompt, reference in zip(PROMPTS, references, strict=True):
                engine = served(server, prompt, scales)
                assert [step.token for step in engine] == [int(logprobs.argmax()) for logprobs in reference]
                assert distance(engine, reference) < tolerance
    without, *trained = answers.values()
    for each in trained:
        for before, after in zip(without, each, strict=True):
            assert np.abs(before[0] - after[0]).max() > MOVED, "the adapter does something"


@pytest.mark.timeout(600)
def test_the_small_model_and_two_adapters_answer_as_peft_does(tmp_path: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from burnish.training.weights import prepared_weights

    torch.set_num_threads(1)
    weights = prepared_weights(ensure_small_model(), SMALL_MODEL_DIGEST, cache_dir() / "weights")
    tokenizer = AutoTokenizer.from_pretrained(weights)
    prompts = [tokenizer(prompt, add_special_tokens=False).input_ids for prompt in OPENINGS[:5]]
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    base = of_model(tmp_path / "base.gguf", SMALL, state, keys=KEYS)
    layout = read_base(base)
    converted = [tmp_path / f"{seed}.gguf" for seed in (0, 1)]
    for seed, target in enumerate(converted):
        adapter = write_peft(tmp_path / str(seed), random_lora(seed, strength=0.1))
        to_gguf(adapter, layout, target)
    loras = ",".join(f"{path}:0" for path in converted)
    arguments = ["-m", str(base), "--lora-scaled", loras, *EXACT]
    with LlamaServer(arguments, tmp_path / "log") as server:
        texts = {
            scales: [[step.token for step in served(server, prompt, scales)] for prompt in prompts]
            for scales in ((0, 0), (1, 0), (0, 1))
        }
    assert len({repr(each) for each in texts.values()}) == 3
    assert sum(map(len, texts[0, 0])) > TOKENS * len(prompts) / 2, "few may end early"
    for scales, answers in texts.items():
        if any(scales):
            model = PeftModel.from_pretrained(model, tmp_path / str(scales.index(1))).eval()
        for prompt, text in zip(prompts, answers, strict=True):
            # One forward pass shows whether the model would have written the text greedily.
            with torch.inference_mode():
                likeliest = model(torch.tensor([prompt + text])).logits[0].argmax(-1).tolist()
            assert likeliest[len(prompt) - 1 : -1] == text
        if any(scales):
            model = model.unload()


async def test_the_embedded_engine_serves_a_qwen3_and_its_adapter(tmp_path: Path) -> None:
    from peft import PeftModel

    from tests.support.tiny_models import greedy, tiny_base, tiny_model, tiny_shape

    shape = tiny_shape("qwen3")
    model = tiny_model(shape)
    base = tiny_base(tmp_path / "tiny.gguf", shape, model)
    host = EmbeddedHost(base, base_model="tiny", state_dir=tmp_path / "state")
    adapter = write_peft(tmp_path / "peft", tiny_lora(shape, 1))
    texts = []
    try:
        for version in (None, version_of(adapter, 1, host.base_digest, "tiny")):
            endpoint = await host.load(version)
            body = {"prompt": PROMPTS[0], "max_tokens": TOKENS, "temperature": 0, "model": endpoint.model}
            async with httpx.AsyncClient(timeout=within(120)) as client:
                url = f"{endpoint.url}/v1/completions"
                answer = await client.post(url, json=body, headers=headers(endpoint))
            texts.append(answer.raise_for_status().json()["choices"][0]["text"])
    finally:
        await host.close()
    expected = [words(greedy(model, PROMPTS[0], TOKENS))]
    expected.append(words(greedy(PeftModel.from_pretrained(model, adapter).eval(), PROMPTS[0], TOKENS)))
    assert texts == expected
    assert texts[0] != texts[1]
