"""The small model unquantised on the real llama-server: base and three adapters say what transformers + peft say."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import read_base
from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, cache_dir, ensure_small_model
from tests.support.llama_server import LlamaServer
from tests.support.lora import SHAPES, random_lora, write_peft
from tests.support.openings import OPENINGS
from tests.support.tiny_gguf import Shape, of_model

TOKENS = 16
ADAPTERS = (1, 2, 3)
SMALL = Shape("llama", heads=9, kv_heads=3, head_dim=64, hidden=576, ffn=1536, blocks=30)
# What the file of the small model says, where a tiny model says something else.
KEYS = {"rope.freq_base": 100000.0, "attention.layer_norm_rms_epsilon": 1e-5, "context_length": 8192}


# peft 0.21 asks transformers 5.23 for an attribute under its old name.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_greedy_texts_are_those_of_peft(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from burnish.training.weights import prepared_weights

    torch.set_num_threads(1)
    weights = prepared_weights(ensure_small_model(), SMALL_MODEL_DIGEST, cache_dir() / "weights")
    tokenizer = AutoTokenizer.from_pretrained(weights)
    prompts = [tokenizer(prompt, add_special_tokens=False).input_ids for prompt in OPENINGS]
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    base = of_model(tmp_path / "base.gguf", SMALL, state, keys=KEYS)
    arguments = [
        "-m",
        str(base),
        "-c",
        "1024",
        "-np",
        "1",
        "-ctk",
        "f32",
        "-ctv",
        "f32",
        "-fa",
        "off",
        "--cache-ram",
        "0",
    ]
    for seed in ADAPTERS:
        adapter = write_peft(tmp_path / str(seed), random_lora(seed, strength=0.1), target_modules=[*SHAPES])
        to_gguf(adapter, read_base(base), tmp_path / f"{seed}.gguf")
        arguments += ["--lora-scaled", f"{tmp_path / f'{seed}.gguf'}:0"]

    def disagreements(texts: list[list[int]]) -> int:
        """How many texts the present model would not have written greedily: one forward pass shows it."""
        wrong = 0
        for prompt, text in zip(prompts, texts, strict=True):
            with torch.inference_mode():
                likeliest = model(torch.tensor([prompt + text])).logits[0].argmax(-1).tolist()
            wrong += likeliest[len(prompt) - 1 : -1] != text
        return wrong

    with LlamaServer(arguments, tmp_path / "log") as server:
        bare = said(server, prompts, None)
        assert disagreements(bare) == 0
        for seed in ADAPTERS:
            texts = said(server, prompts, seed)
            if seed == ADAPTERS[0]:
                model = PeftModel.from_pretrained(model, tmp_path / str(seed), adapter_name=str(seed)).eval()
            else:
                model.load_adapter(tmp_path / str(seed), adapter_name=str(seed))
            model.set_adapter(str(seed))
            assert disagreements(texts) == 0
            assert texts != bare


def said(server: LlamaServer, prompts: list[list[int]], adapter: int | None) -> list[list[int]]:
    """The greedy tokens with one adapter, or none."""
    scales = [{"id": place, "scale": float(seed == adapter)} for place, seed in enumerate(ADAPTERS)]
    body = {"n_predict": TOKENS, "temperature": 0, "return_tokens": True, "lora": scales}
    body["cache_prompt"] = False
    texts = []
    for prompt in prompts:
        answer = httpx.post(f"{server.url}/completion", json=body | {"prompt": prompt}, timeout=120)
        texts.append(list(answer.raise_for_status().json()["tokens"]))
    assert sum(map(len, texts)) > TOKENS * len(texts) / 2, "few may end early"
    return texts
