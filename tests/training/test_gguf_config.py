"""What a GGUF says besides its weights comes to training, or is refused; compared with the real llama-server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.adapters.hosts.fetch import file_digest
from burnish.training.errors import JobError
from burnish.training.gguf_config import complete, read_gguf
from burnish.training.weights import MARKER, prepared_weights
from tests.support import tiny_gguf
from tests.support.llama_server import LlamaServer
from tests.support.tiny_gguf import Shape, llama3_factors

torch = pytest.importorskip("torch")
# It says so of each Llama 3 and of each yarn whose figures are not those of the first that had one.
pytestmark = pytest.mark.filterwarnings("ignore:.*rope_parameters.*")

TOP = 50
# Long enough for the slow frequencies to turn, and longer than the window of Gemma's local layers (512).
PROMPT = [int(token) for token in np.random.default_rng(0).integers(100, 2000, 700)]
# Largest difference of a log-probability, in nats. Measured: 2e-5.
TOLERANCE = 1e-3
# Measured: 4e-4 to 2e-3, since llama.cpp looks GELU up in a table of 16-bit values.
GELU_TOLERANCE = 2e-2

LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 256}
DEFAULTS = {"rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0}
ROPE_FREQS = "rope_freqs.weight"


@pytest.fixture
def one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers asks for the same table of names once for each module: a minute of CPU for 62 layers."""
    monkeypatch.setattr(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map))


@pytest.mark.slow
@pytest.mark.usefixtures("one_table")
@pytest.mark.parametrize(
    ("architecture", "blocks", "keys", "tensors"),
    [
        pytest.param("llama", 2, {}, {ROPE_FREQS: llama3_factors(16, 8.0)}, id="llama 3"),
        pytest.param("llama", 2, {"rope.scale_linear": 4.0}, {}, id="linear by its old name"),
        pytest.param("qwen2", 2, {}, {}, id="no scaling"),
        pytest.param("qwen2", 2, YARN | DEFAULTS, {}, id="yarn"),
        pytest.param("qwen3", 2, YARN, {}, id="yarn, and narrow heads"),
        pytest.param(
            "gemma2", 2, {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 7.0}, {}, id="caps"
        ),
        pytest.param("gemma2", 46, {}, {}, id="gemma 2 27b"),
        pytest.param("gemma3", 6, LINEAR | {"rope.freq_base_swa": 5e3}, {}, id="gemma 3 4b"),
        pytest.param("gemma3", 62, LINEAR, {}, id="gemma 3 27b"),
    ],
)
def test_a_dequantised_file_computes_what_the_engine_does(
    architecture: str, blocks: int, keys: Mapping[str, Any], tensors: Mapping[str, Any], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    from tests.support.tiny_models import steps

    base = tiny_file(tmp_path, architecture, blocks=blocks, keys=keys, tensors=tensors)
    weights = prepared_weights(base, file_digest(base), tmp_path / "weights")
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32, attn_implementation="eager")
    [trained] = steps(model.eval(), PROMPT, 1)
    served = likeliest(base, tmp_path / "log")
    tolerance = GELU_TOLERANCE if architecture.startswith("gemma") else TOLERANCE
    assert max(abs(trained[token] - value) for token, value in served.items()) < tolerance


def tiny_file(folder: Path, architecture: str, blocks: int = 2, **more: Any) -> Path:
    """A GGUF that llama.cpp can serve; its weights have 16 bits' precision, as prepared weights do."""
    from tests.support.tiny_models import tiny_base, tiny_model, tiny_shape

    shape = tiny_shape(architecture, blocks=blocks)
    model = tiny_model(shape)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return tiny_base(folder / "base.gguf", shape, model, **more)


def likeliest(base: Path, log: Path) -> dict[int, float]:
    """The engine's likeliest tokens after the prompt, with their log-probabilities."""
    exact = ["-c", "1024", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "--cache-ram", "0"]
    with LlamaServer(["-m", str(base), *exact], log) as server:
        body = {"prompt": PROMPT, "n_predict": 1, "temperature": 0, "n_probs": TOP}
        response = httpx.post(f"{server.url}/completion", json=body, timeout=60)
    [step] = response.raise_for_status().json()["completion_probabilities"]
    return {each["id"]: each["logprob"] for each in step["top_logprobs"]}


@pytest.mark.slow
def test_a_directory_by_other_rules_is_made_anew(tmp_path: Path) -> None:
    base = tiny_file(tmp_path, "llama", tensors={ROPE_FREQS: llama3_factors(16, 8.0)})
    digest, cache = file_digest(base), tmp_path / "weights"
    config = prepared_weights(base, digest, cache) / "config.json"
    right = json.loads(config.read_text())
    assert right["rope_parameters"]["rope_type"] == "llama3"
    (config.parent / MARKER).unlink()
    config.write_text("{}")
    assert prepared_weights(base, digest, cache) == config.parent
    assert json.loads(config.read_text()) == right
    assert (config.parent / MARKER).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "keys", "tensors", "said"),
    [
        ("qwen3", {"attention.key_length": 64, "attention.value_length": 64, "rope.dimension_count": 64}, {},
         "transformers cannot read"),
        ("llama", {}, {"blk.1.attn_q.bias": np.ones(64, np.float32)}, "it holds 21 weights, .* transformers 20"),
        ("gemma", {}, {}, "architecture gemma is not supported"),
        ("mistral3", {}, {}, "architecture mistral3 is not supported"),
    ],
)  # fmt: skip
def test_models_that_transformers_cannot_read_are_refused(
    architecture: str, keys: Mapping[str, Any], tensors: Mapping[str, Any], said: str, tmp_path: Path
) -> None:
    base = tiny_file(tmp_path, architecture, keys=keys, tensors=tensors)
    with pytest.raises(JobError, match=said):
        prepared_weights(base, file_digest(base), tmp_path / "weights")
    assert [path.name for path in (tmp_path / "weights").glob("[!.]*")] == []


def completed(path: Path, architecture: str, keys: Mapping[str, Any], factors: Any = None) -> Any:
    """A configuration that was completed from a file without weights."""
    from tests.support.tiny_models import CONFIGS

    shape = Shape(architecture, head_dim=16 if architecture in ("llama", "qwen2") else 32)
    tensors = {"token_embd.weight": np.zeros((8, 64), np.float32)}
    tensors |= {} if factors is None else {ROPE_FREQS: factors}
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 4096}
    config = CONFIGS[architecture](head_dim=shape.head_dim, **sizes)
    complete(config, read_gguf(tiny_gguf.write(path / "base.gguf", shape, tensors, keys=keys)))
    return config


def altered(place: int) -> Any:
    factors = llama3_factors(16, 8.0)
    factors[place] *= 1.001
    return factors


@pytest.mark.parametrize(
    ("architecture", "keys", "factors", "said"),
    [
        ("llama", {"rope.scaling.type": "longrope", "rope.scaling.factor": 4.0}, None, "scaled by 'longrope'"),
        ("llama", LINEAR | {"rope.scaling.attn_factor": 0.5}, None, "attn_factor is 0.5, which is unknown"),
        ("qwen2", LINEAR | DEFAULTS, None, "yarn_beta_fast is 32.0, which is unknown for 'linear'"),
        ("qwen2", YARN | {"rope.scaling.yarn_beta_fast": 8.0}, None, "yarn_beta_fast is 8.0"),
        ("qwen3", YARN | {"rope.scaling.yarn_ext_factor": 0.5}, None, "yarn_ext_factor is 0.5"),
        ("qwen3", {"attention.value_length": 16}, None, "heads are 32 wide, but qwen3.attention.value_length is 16"),
        ("qwen2", {"rope.dimension_count": 8}, None, "heads are 16 wide, but qwen2.rope.dimension_count is 8"),
        ("gemma2", {"rope.freq_base_swa": 5e3}, None, r"a rope of their own \(5000\)"),
        ("gemma2", {"attention.sliding_window_pattern": 3}, None, "every 3th of its layers"),
        ("gemma3", {"attention.sliding_window": 0}, None, "it has no sliding window"),
        ("gemma3", {"final_logit_softcapping": 30.0}, None, "its logits are capped"),
        ("llama", {"attention.head_count": "four"}, None, "head_count is 'four', expected a number"),
        *(("llama", {}, altered(place), "does not follow Llama 3's rule") for place in (0, 3, 4, 7)),
        ("llama", LINEAR, llama3_factors(32, 8.0), "which only a llama without other scaling"),
        ("qwen3", {}, llama3_factors(32, 8.0), "which only a llama without other scaling"),
    ],
)  # fmt: skip
def test_what_transformers_cannot_compute_is_refused(
    architecture: str, keys: Mapping[str, Any], factors: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(JobError, match=said) as refusal:
        completed(tmp_path, architecture, keys, factors)
    assert str(tmp_path / "base.gguf") in str(refusal.value)
    assert "serve another GGUF of this model, or its Hugging Face directory with vLLM" in str(refusal.value)


@settings(deadline=None, max_examples=30)
@given(factor=st.floats(1, 64, width=32), theta=st.sampled_from([1e4, 5e5]))
def test_factors_tell_llama_3(factor: float, theta: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    factors = llama3_factors(16, factor, theta)
    keys = {"rope.freq_base": theta}
    config = completed(tmp_path_factory.mktemp("right"), "llama", keys, factors)
    frequencies = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    scaling = {"rope_type": "llama3", "rope_theta": theta, "factor": pytest.approx(factor)}
    assert config.rope_parameters == scaling | frequencies


def test_a_llama_that_transformers_takes_for_a_mistral_has_no_window(tmp_path: Path) -> None:
    from transformers import MistralConfig

    path = tiny_gguf.write(tmp_path / "base.gguf", Shape("llama", head_dim=16), {})
    config = MistralConfig(hidden_size=64, num_attention_heads=4, head_dim=16)
    assert config.sliding_window
    complete(config, read_gguf(path))
    assert config.sliding_window is None


def test_a_factor_of_no_scaling_means_nothing(tmp_path: Path) -> None:
    config = completed(tmp_path, "llama", LINEAR | {"rope.scaling.type": "none"})
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 1e4}


def test_a_file_may_list_several_ends(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "base.gguf", "gemma3")
    writer.add_eos_token_id(1)
    writer.add_eot_token_id(106)
    tiny_gguf.finish(writer)
    assert read_gguf(tmp_path / "base.gguf").ends == [1, 106]
    assert read_gguf(tiny_gguf.write(tmp_path / "none.gguf", Shape("llama"), {})).ends == []


def test_prepared_weights_list_the_ends_of_their_file(tiny_weights: Path) -> None:
    assert json.loads((tiny_weights / "generation_config.json").read_text())["eos_token_id"] == [2]
