"""Tiny base models as GGUF, of every architecture that the converter knows: blank ones, and ones that really compute.

Written as llama.cpp's convert_hf_to_gguf.py does it, but by other means than the converter under test: the tensor names
stand here in full, and rows are moved one by one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import gguf
import numpy as np
from numpy.typing import NDArray

from burnish.adapters.hosts.fetch import ensure_small_model

Array = NDArray[np.float32]
NOTHING: Mapping[str, Any] = MappingProxyType({})

LINEAR = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
# Gemma 2 and 3 put a norm behind each part, too, and so Hugging Face's second name means another one.
GEMMA_NORMS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
TOKENS, MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
FORMS = {
    "UINT8": "B", "INT8": "b", "UINT16": "H", "INT16": "h", "UINT32": "I", "INT32": "i", "FLOAT32": "f", "BOOL": "?",
    "UINT64": "Q", "INT64": "q", "FLOAT64": "d",
}  # fmt: skip
"""Type of a number in GGUF → its format in ``struct``."""
INTERLEAVED = ("llama", "mistral3")
ARCHITECTURES = ("llama", "mistral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3")


@dataclass(frozen=True, slots=True)
class Shape:
    architecture: str
    """As GGUF calls it."""
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    hidden: int = 64
    ffn: int = 96
    blocks: int = 2
    vocabulary: int = 2048
    """The first tokens of the small model's tokenizer, which has 49,152."""
    tied: bool = True

    @property
    def modules(self) -> dict[str, tuple[int, int]]:
        """Hugging Face module → (out, in), for every linear layer."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sizes = {
            "self_attn.q_proj": (queries, self.hidden), "self_attn.k_proj": (keys, self.hidden),
            "self_attn.v_proj": (keys, self.hidden), "self_attn.o_proj": (self.hidden, queries),
            "mlp.gate_proj": (self.ffn, self.hidden), "mlp.up_proj": (self.ffn, self.hidden),
            "mlp.down_proj": (self.hidden, self.ffn),
        }  # fmt: skip
        blocks = {
            f"model.layers.{i}.{name}": size for i in range(self.blocks) for name, size in sizes.items()
        }
        return blocks if self.tied else blocks | {"lm_head": (self.vocabulary, self.hidden)}


def interleaved(rows: Array, heads: int) -> Array:
    """Row by row: within each head, first-half row i goes to 2i, second-half row i to 2i + 1."""
    size = len(rows) // heads
    result = np.empty_like(rows)
    for head in range(heads):
        for i in range(size // 2):
            result[head * size + 2 * i] = rows[head * size + i]
            result[head * size + 2 * i + 1] = rows[head * size + size // 2 + i]
    return result


def gguf_name(module: str) -> str:
    """The name of a linear layer's weight in GGUF."""
    if module == "lm_head":
        return "output.weight"
    _, _, block, name = module.split(".", 3)
    return f"blk.{block}.{LINEAR[name]}.weight"


def blank(path: Path, shape: Shape) -> Path:
    """A base that has all linear layers, filled with zeros, and no tokenizer: enough to convert adapters for."""
    tensors = {gguf_name(module): np.zeros(size, np.float32) for module, size in shape.modules.items()}
    tensors["token_embd.weight"] = np.zeros((shape.vocabulary, shape.hidden), np.float32)
    return write(path, shape, tensors)


def of_model(
    path: Path,
    shape: Shape,
    state: Mapping[str, Array],
    *,
    keys: Mapping[str, Any] = NOTHING,
    tensors: Mapping[str, Array] = NOTHING,
) -> Path:
    """A base that llama.cpp can serve, of the weights of a transformers model, with the small model's tokenizer.

    ``keys``: more keys of the architecture, or other values for those that there are; ``tensors``: more tensors.
    """
    weights = {name: array for item in state.items() for name, array in _moved(shape, *item)}
    return write(path, shape, weights | dict(tensors), speaks=True, keys=keys)


def tiny_lora(shape: Shape, seed: int, rank: int = 4, strength: float = 0.5) -> dict[str, Array]:
    """Tensors of a LoRA on every linear layer; by default strong enough to change most answers."""
    dice = np.random.default_rng(seed)
    tensors = {}
    for module, (out, width) in shape.modules.items():
        name = f"base_model.model.{module}"
        tensors[f"{name}.lora_A.weight"] = dice.normal(0, width**-0.5, (rank, width)).astype(np.float32)
        b = dice.normal(0, strength, (out, rank)).astype(np.float32)
        if module == "lm_head":
            b[~sayable(shape.vocabulary)] = 0
        tensors[f"{name}.lora_B.weight"] = b
    return tensors


TINY = Shape("llama", head_dim=16)


def random_llama(path: Path, *, keys: Mapping[str, Any] = NOTHING) -> Path:
    """A base that llama.cpp can serve and our trainer can train, in a fraction of the small model's time.

    ``keys``: as of_model.
    """
    return random_model(path, TINY, keys=keys)


def random_model(path: Path, shape: Shape, *, keys: Mapping[str, Any] = NOTHING) -> Path:
    """A base of random weights, of an architecture without Gemma's further norms."""
    dice = np.random.default_rng(0)
    modules = shape.modules | {"model.embed_tokens": (shape.vocabulary, shape.hidden)}
    state = {
        f"{name}.weight": dice.normal(0, size[1] ** -0.5, size).astype(np.float32)
        for name, size in modules.items()
    }
    state["model.embed_tokens.weight"][~sayable(shape.vocabulary)] = 0
    ones = np.ones(shape.hidden, np.float32)
    norms = [f"model.layers.{block}.{name}" for block in range(shape.blocks) for name in NORMS]
    return of_model(
        path, shape, state | {f"{name}.weight": ones for name in [*norms, "model.norm"]}, keys=keys
    )


def llama3_factors(width: int, factor: float, theta: float = 1e4) -> Array:
    """The tensor rope_freqs of a Llama from 3.1 on, as convert_hf_to_gguf.py computes it, one frequency at a time."""
    low_factor, high_factor, context = 1.0, 4.0, 8192
    found = []
    for i in range(0, width, 2):
        length = 2 * math.pi * theta ** (i / width)
        if length < context / high_factor:
            found.append(1.0)
        elif length > context / low_factor:
            found.append(factor)
        else:
            smooth = (context / length - low_factor) / (high_factor - low_factor)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


def write(
    path: Path,
    shape: Shape,
    tensors: Mapping[str, Array],
    *,
    speaks: bool = False,
    keys: Mapping[str, Any] = NOTHING,
) -> Path:
    """Write a GGUF of these tensors; ``speaks``: with a tokenizer; ``keys``: as of_model."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_name(f"tiny {shape.architecture}")
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.blocks)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(shape.vocabulary)
    # Gemma 3 has another base in its local layers, which llama.cpp knows by itself.
    writer.add_rope_freq_base(1e6 if shape.architecture == "gemma3" else 1e4)
    if shape.architecture in ("gemma2", "gemma3"):
        writer.add_sliding_window(512)
    if shape.architecture == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
    if speaks:
        for key, value, kind, inner in _tokenizer(shape.vocabulary):
            writer.add_key_value(key, value, kind, inner)
    for name, value in keys.items():
        key = name if name.startswith("tokenizer.") else f"{shape.architecture}.{name}"
        writer.kv_data[0].pop(key, None)
        kind = gguf.GGUFValueType.get_type(value)  # llama.cpp wants whole numbers without a sign
        writer.add_key_value(
            key, value, gguf.GGUFValueType.UINT32 if kind is gguf.GGUFValueType.INT32 else kind
        )
    for name, array in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    finish(writer)
    return path


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _moved(shape: Shape, name: str, array: Array) -> list[tuple[str, Array]]:
    """A tensor of a transformers model as it stands in GGUF; none when it stands there already (a tied lm_head)."""
    gemma = shape.architecture.startswith("gemma")
    if name == "lm_head.weight":
        return [] if shape.tied else [("output.weight", array)]
    if name == "model.embed_tokens.weight":
        return [("token_embd.weight", array)]
    if name == "model.norm.weight":
        return [("output_norm.weight", array + gemma)]
    module, _, part = name.rpartition(".")
    _, _, block, module = module.split(".", 3)
    norms = (GEMMA_NORMS if shape.architecture in ("gemma2", "gemma3") else NORMS) | HEAD_NORMS
    if module in norms:
        return [(f"blk.{block}.{norms[module]}.{part}", array + gemma)]
    if shape.architecture in INTERLEAVED and module.endswith(("q_proj", "k_proj")):
        array = interleaved(array, shape.heads if module.endswith("q_proj") else shape.kv_heads)
    return [(f"blk.{block}.{LINEAR[module]}.{part}", array)]


def words(tokens: Sequence[int]) -> str:
    """The text of tokens that are plain text."""
    vocabulary = _vocabulary()
    return "".join(vocabulary[token] for token in tokens).replace("Ġ", " ")


@cache
def sayable(vocabulary: int) -> NDArray[np.bool_]:
    """For each token, whether it is plain text: llama-server answers 500 to a reply that isn't UTF-8."""
    tokens = _vocabulary()[:vocabulary]
    return np.array([token.replace("Ġ", " ").isascii() and "<|" not in token for token in tokens])


def _vocabulary() -> list[str]:
    return next(list(value) for key, value, *_ in _whole_tokenizer() if key == TOKENS)


@cache
def _tokenizer(vocabulary: int) -> list[tuple[str, Any, Any, Any]]:
    """The small model's tokenizer with its first tokens only, key by key."""
    kept = set(_vocabulary()[:vocabulary])

    def cut(key: str, value: Any) -> Any:
        if key == MERGES:
            return [merge for merge in value if merge.replace(" ", "") in kept]
        return value[:vocabulary] if isinstance(value, list) else value

    return [(key, cut(key, value), *kinds) for key, value, *kinds in _whole_tokenizer()]


@cache
def _whole_tokenizer() -> list[tuple[str, Any, Any, Any]]:
    """The keys of the small model's tokenizer. gguf's own reader takes seconds for so many tokens."""
    with ensure_small_model().open("rb") as file:
        return [each for each in _keys(file) if each[0].startswith("tokenizer.")]


def _keys(file: BinaryIO) -> Iterator[tuple[str, Any, Any, Any]]:
    """What a GGUF says before its tensors: key, value, type, and the type of a list's members."""

    def number(form: str) -> Any:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]

    def text() -> str:
        return bytes(file.read(number("Q"))).decode()

    def one(kind: gguf.GGUFValueType) -> Any:
        return text() if kind is gguf.GGUFValueType.STRING else number(FORMS[kind.name])

    assert (file.read(4), number("I")) == (b"GGUF", 3)
    number("Q")  # how many tensors there are
    for _ in range(number("Q")):
        key, kind, inner = text(), gguf.GGUFValueType(number("I")), None
        if kind is gguf.GGUFValueType.ARRAY:
            inner = gguf.GGUFValueType(number("I"))
            yield key, [one(inner) for _ in range(number("Q"))], kind, inner
        else:
            yield key, one(kind), kind, inner
