"""Settings of a GGUF that transformers ignores when it reads the file.

transformers (5.23) takes over the sizes and the base of the rope. It drops how the rope is scaled, Gemma's scale of
queries and caps, and the width of Qwen 3's heads, and computes on with its defaults: a silently different model. Here
that is filled in as llama.cpp reads it (load_hparams in src/llama-model.cpp, src/llama-context.cpp, src/models/), and
what transformers cannot compute is refused. Only architectures that were compared with llama.cpp are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.adapters.convert.gguf_layout import TRAINABLE, field, open_gguf
from burnish.training.errors import JobError

_GEMMA = ("gemma2", "gemma3")
# Layers of the 27B models: llama.cpp tells them by that, and scales their queries by another width.
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
# Every so many layers, one looks at everything; both programs' default.
_FULL_EVERY = {"gemma2": 2, "gemma3": 6}
_ROPE_FACTORS = "rope_freqs.weight"
# All released Llamas from 3.1 on differ in the factor only (rope_scaling in their config.json).
_LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# The tensor was computed in 32 bits; another rule differs by much more.
_FACTOR_TOLERANCE = 1e-4
_SCALING = "rope.scaling."
_HARMLESS_SCALING = {"type", "factor", "original_context_length", "finetuned"}
# What yarn computes with anyway. Other values are refused: llama-server does not act on all of them (measured).
_YARN_DEFAULTS = {
    "attn_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_ext_factor": 1.0,
}
_DEFAULT_THETA = 10_000.0
_ENDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The settings in a GGUF; parsing a file with a large vocabulary takes seconds."""

    path: Path
    architecture: str
    keys: dict[str, Any]
    """The keys of the architecture, without its name: "rope.freq_base" → 10000.0."""
    rope_factors: Any
    """By what each frequency of the rope is divided, a vector; None when the file has none."""
    weights: int
    """Tensors that are weights."""
    ends: list[int]
    """The tokens at which llama.cpp stops, as far as the file lists them."""

    def number(self, key: str, otherwise: float | None = None) -> Any:
        """Return a number. Raises JobError when it is missing (without ``otherwise``), or one for each layer."""
        number = self.keys.get(key, otherwise)
        if not isinstance(number, int | float):
            raise self.refused(f"{self.architecture}.{key} is {number!r}, expected a number")
        return number

    def refused(self, why: str) -> JobError:
        return JobError(
            f"cannot train on {self.path}: {why}. transformers would compute another model than the engine serves; "
            "serve another GGUF of this model, or its Hugging Face directory with vLLM, SGLang or MLX"
        )


def complete(config: Any, file: GgufFile) -> None:
    """Add the settings that transformers ignored to its configuration.

    Raises JobError when the file tells the engine to compute what transformers cannot.
    """
    if file.architecture not in TRAINABLE:
        raise JobError(
            f"cannot train on {file.path}: the architecture {file.architecture} is not supported from a GGUF, only "
            f"{', '.join(TRAINABLE)}; serve its Hugging Face directory with vLLM, SGLang or MLX"
        )
    _complete_heads(config, file)
    rope = {"rope_theta": float(file.number("rope.freq_base", _DEFAULT_THETA))} | _scaling(file)
    if file.architecture in _GEMMA:
        _complete_gemma(config, file)
    if file.architecture == "gemma3":  # its local layers are never scaled
        local = float(file.number("rope.freq_base_swa", _DEFAULT_THETA))
        config.rope_parameters = {
            "full_attention": rope,
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        }
    else:
        config.rope_parameters = rope
    if config.model_type == "mistral":  # "llama" to llama.cpp, which lets all layers look at everything
        config.sliding_window = None
    if file.rope_factors is not None:
        _check_rope_factors(config, file)


def check_weights(model: Any, file: GgufFile) -> None:
    """Refuse a GGUF with weights that transformers' model has no place for, or lacks. Raises JobError."""
    places = sum(1 for _ in model.parameters())
    if places != file.weights:
        raise file.refused(
            f"it holds {file.weights} weights, the {file.architecture} of transformers {places}"
        )


def read_gguf(path: Path) -> GgufFile:
    """Read the keys of a GGUF. Raises JobError when that fails."""
    from gguf import dequantize

    try:
        reader = open_gguf(path)
        architecture = field(reader, "general.architecture")
        prefix = f"{architecture}."
        factors = [dequantize(t.data, t.tensor_type) for t in reader.tensors if t.name == _ROPE_FACTORS]
        return GgufFile(
            path,
            architecture,
            {key.removeprefix(prefix): field(reader, key) for key in reader.fields if key.startswith(prefix)},
            factors[0] if factors else None,
            len(reader.tensors) - len(factors),
            sorted({token for key in _ENDS if isinstance(token := field(reader, key), int)}),
        )
    except (OSError, ValueError) as error:
        raise JobError(f"cannot read {path} as GGUF: {error}") from error


def _complete_heads(config: Any, file: GgufFile) -> None:
    shared = file.number("embedding_length") // file.number("attention.head_count")
    width = file.number("attention.key_length", shared)
    for key, otherwise in (("attention.value_length", shared), ("rope.dimension_count", width)):
        if (size := file.number(key, otherwise)) != width:
            raise file.refused(f"its heads are {width} wide, but {file.architecture}.{key} is {size}")
    if (getattr(config, "head_dim", None) or shared) != width:
        config.head_dim = width


def _scaling(file: GgufFile) -> dict[str, Any]:
    kind = file.keys.get(f"{_SCALING}type", "linear")
    factor = float(file.number(f"{_SCALING}factor", file.number("rope.scale_linear", 0)) or 1)
    neutral = _YARN_DEFAULTS if kind == "yarn" else {}
    for key, parameter in file.keys.items():
        name = key.removeprefix(_SCALING)
        if name != key and name not in _HARMLESS_SCALING and neutral.get(name) != parameter:
            raise file.refused(f"{file.architecture}.{key} is {parameter!r}, which is unknown for {kind!r}")
    if kind not in ("none", "linear", "yarn"):
        raise file.refused(f"its rope is scaled by {kind!r}; expected linear, yarn or Llama 3's way")
    scaled = kind != "none" and factor != 1
    if file.rope_factors is not None:
        if scaled or file.architecture != "llama":
            raise file.refused(f"it holds {_ROPE_FACTORS}, which only a llama without other scaling may have")
        return {"rope_type": "llama3", "factor": float(file.rope_factors.max()), **_LLAMA_3}
    if not scaled:
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    trained = file.number(f"{_SCALING}original_context_length", file.number("context_length"))
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained}


def _check_rope_factors(config: Any, file: GgufFile) -> None:
    """Compare the frequencies that transformers computes with those that the file holds."""
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = config.rope_parameters["rope_theta"] ** -torch.arange(0, 1, 2 / config.head_dim)
    expected = plain / torch.tensor(file.rope_factors)
    if expected.shape != frequencies.shape or not torch.allclose(
        frequencies, expected, rtol=_FACTOR_TOLERANCE, atol=0
    ):
        raise file.refused(
            f"its {_ROPE_FACTORS}, up to {file.rope_factors.max():g}, does not follow Llama 3's rule "
            f"({', '.join(f'{name} {parameter:g}' for name, parameter in _LLAMA_3.items())})"
        )


def _complete_gemma(config: Any, file: GgufFile) -> None:
    layers, full_every = file.number("block_count"), _FULL_EVERY[file.architecture]
    if file.architecture == "gemma3":
        if not file.number("attention.sliding_window", 0):
            raise file.refused("it has no sliding window, so all its layers have full attention")
        if file.number("final_logit_softcapping", 0):
            raise file.refused("its logits are capped, which no released Gemma 3 does")
    else:
        for name in ("attn_logit_softcapping", "final_logit_softcapping"):
            setattr(config, name, float(file.number(name, getattr(config, name))))
        if (base := file.keys.get("rope.freq_base_swa")) not in (None, file.number("rope.freq_base", base)):
            raise file.refused(f"its local layers have a rope of their own ({base:g})")
    if (period := file.number("attention.sliding_window_pattern", full_every)) != full_every:
        raise file.refused(f"every {period}th of its layers has full attention, not every {full_every}th")
    wide = layers == _LAYERS_OF_27B[file.architecture]
    heads = file.number("attention.head_count")
    config.query_pre_attn_scalar = file.number("embedding_length") // heads if wide else config.head_dim
