"""The layout of a base GGUF, which adapters for it must have: names of tensors, their shapes, the order of their rows.

The rules are those of llama.cpp's convert_hf_to_gguf.py (its folder conversion/: llama.py, mistral3.py, qwen.py,
gemma.py) and convert_lora_to_gguf.py. In these architectures only the rows of q and k can differ between Hugging Face
and GGUF. Gemma adds 1 to its norms, which doesn't matter here: an adapter on a norm is refused. Other architectures
are refused, because some store weights fused or changed in other ways (phi3: q, k and v in one).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from burnish.adapters.convert.peft import Array, in_text_part
from burnish.adapters.errors import EngineError, IncompatibleAdapter

# LLAMA_ROPE_TYPE_NORM in llama.cpp: it rotates dimension 2i with 2i + 1, where Hugging Face pairs i with i + d/2.
# Mistral models are "llama" in GGUF; "mistral3" is Ministral and Mistral Small from 3.1 on.
_INTERLEAVED = frozenset({"llama", "mistral3"})
# LLAMA_ROPE_TYPE_NEOX: the same pairs as Hugging Face, and so the same rows.
_IN_ORDER = frozenset({"qwen2", "qwen3", "gemma", "gemma2", "gemma3"})
TRAINABLE = ("gemma2", "gemma3", "llama", "qwen2", "qwen3")
"""Architectures that burnish also trains from a GGUF; of the others it needs the Hugging Face directory."""

_LINEAR = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip
_MATRIX = 2
LONG_LIST = 1024
"""A model's vocabulary and merges are longer; lists with a number for each layer are shorter."""
LIST_HEAD_BYTES = 12


@dataclass(frozen=True, slots=True)
class BaseLayout:
    """The part of a base GGUF that its adapters depend on."""

    path: Path
    architecture: str
    """In GGUF's words, e.g. "llama"."""
    blocks: int
    heads: int
    kv_heads: int
    shapes: dict[str, tuple[int, ...]]
    """GGUF tensor name → shape in row-major order: (out, in)."""


def read_base(path: Path) -> BaseLayout:
    """Read the layout of a base GGUF. Raises EngineError (unreadable), IncompatibleAdapter (another architecture)."""
    try:
        reader = open_gguf(path)
        architecture = field(reader, "general.architecture")
        if architecture in _INTERLEAVED | _IN_ORDER:
            layout = _layout(path, reader, architecture)
            _check_heads(layout)
            return layout
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot read the model {path} as GGUF: {error}") from error
    raise IncompatibleAdapter(
        f"{path} has the architecture {architecture!r}; expected one of "
        f"{', '.join(sorted(_INTERLEAVED | _IN_ORDER))}, since others store their weights in another form"
    )


def untrainable(path: Path) -> str | None:
    """Return why burnish can't train a model from its weights; None if it can, and if they can't be read as GGUF."""
    try:
        architecture = field(open_gguf(path), "general.architecture")
    except (OSError, ValueError):
        return None  # a directory; what is wrong with a file is said where it is loaded
    if architecture in TRAINABLE:
        return None
    return (
        f"its architecture is {architecture}, and burnish trains only {', '.join(TRAINABLE)} from a GGUF. Ratings are "
        "kept. To train it, serve its Hugging Face directory with vLLM, SGLang or MLX"
    )


def _layout(path: Path, reader: Any, architecture: str) -> BaseLayout:
    def number(key: str, default: int | None = None) -> int:
        value = field(reader, f"{architecture}.{key}", default)
        if not isinstance(value, int):  # None, or a list: one number a layer
            raise ValueError(f"{architecture}.{key} is {value!r}, expected a number")
        return value

    heads = number("attention.head_count")
    return BaseLayout(
        path,
        architecture,
        number("block_count"),
        heads,
        number("attention.head_count_kv", heads),
        {tensor.name: tuple(int(n) for n in reversed(tensor.shape)) for tensor in reader.tensors},
    )


def open_gguf(path: Path) -> Any:
    """Return gguf's reader of a file, without long lists. Raises OSError, ValueError (cut, damaged, or not GGUF)."""
    try:
        return _reader()(path)
    except (LookupError, OverflowError) as error:
        raise ValueError(f"the file is damaged: {error!r}") from error


def field(reader: Any, key: str, default: Any = None) -> Any:
    """Return a metadata value; ``default`` if the file has no such key."""
    metadata = reader.get_field(key)
    return default if metadata is None else metadata.contents()


def demanded(reader: Any, key: str) -> Any:
    """Return a metadata value. Raises ValueError if the file has no such key."""
    if reader.get_field(key) is None:
        raise ValueError(f"it has no {key}")
    return field(reader, key)


@cache
def _reader() -> Any:
    import gguf

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        """A reader that stops at the end of the file; gguf's own loops for ever if a length is damaged.

        It passes over long lists, which are empty then: gguf's own takes seconds and tens of MB for a vocabulary.
        """

        def _get(self, offset: int, dtype: Any, count: int = 1, *more: Any, **named: Any) -> Any:
            if offset + int(count) * np.dtype(dtype).itemsize > len(self.data):
                raise ValueError(f"the file is cut: it ends within a field at byte {offset}")
            return super()._get(offset, dtype, count, *more, **named)

        def _get_field_parts(self, offset: int, kind: int) -> Any:
            if kind == gguf.GGUFValueType.ARRAY:
                of = gguf.GGUFValueType(self._get(offset, np.uint32)[0])
                count = int(self._get(offset + 4, np.uint64)[0])
                if count > LONG_LIST and of != gguf.GGUFValueType.ARRAY:
                    return self._end(offset + LIST_HEAD_BYTES, of, count) - offset, [], [], [kind, of]
            return super()._get_field_parts(offset, kind)

        def _end(self, offset: int, of: Any, count: int) -> int:
            if of == gguf.GGUFValueType.STRING:
                order = "<" if self.endianess == gguf.GGUFEndian.LITTLE else ">"
                return _after_strings(memoryview(self.data), offset, count, struct.Struct(f"{order}Q"))
            return offset + count * int(np.dtype(self.gguf_scalar_to_np[of]).itemsize)

    return Reader


def _after_strings(data: memoryview, offset: int, count: int, length: struct.Struct) -> int:
    """Return the offset after ``count`` length-prefixed strings. Raises ValueError."""
    try:
        for _ in range(count):
            offset += length.size + length.unpack_from(data, offset)[0]
    except (struct.error, OverflowError) as error:
        raise ValueError(f"the file is cut: it ends within a list at byte {offset}") from error
    return offset


def gguf_name(module: str, base: BaseLayout) -> str:
    """Return the GGUF name of a Hugging Face module's weight.

    Raises IncompatibleAdapter when the base has none: another model, fewer layers, fused weights, a tied lm_head.
    """
    text = in_text_part(module)
    # As convert_lora_to_gguf.py maps the text part of a model that also sees.
    full = text if text == "lm_head" else f"model.{text}"
    name = _names(base.architecture, base.blocks).get_name(f"{full}.weight", try_suffixes=(".weight",))
    if name is not None and name in base.shapes and len(base.shapes[name]) == _MATRIX:
        return str(name)
    reason = ""
    if text == "lm_head":
        reason = "; its output layer is the embedding, and an adapter can't change only one of them"
    elif any("attn_qkv" in tensor for tensor in base.shapes):
        reason = "; it keeps q, k and v fused in one tensor"
    raise IncompatibleAdapter(f"the base {base.path.name} has no tensor for {module}{reason}")


def modules_by_name(base: BaseLayout) -> dict[str, str]:
    """Return GGUF tensor name → Hugging Face module, for every layer that an adapter can change."""
    modules = [f"model.layers.{i}.{module}" for i in range(base.blocks) for module in _LINEAR] + ["lm_head"]
    known = _names(base.architecture, base.blocks)
    names = {f"{known.get_name(module)}.weight": module for module in modules}
    return {name: module for name, module in names.items() if name in base.shapes}


def reordered(name: str, b: Array, base: BaseLayout, *, for_gguf: bool) -> Array:
    """Put the rows of lora_B (out, r) from Hugging Face's order into GGUF's, or back.

    lora_A is untouched, since permuting the rows of B @ A permutes those of B.
    """
    heads = _interleaved_heads(name, base)
    if heads is None:
        return b
    out, rank = b.shape
    half = out // heads // 2
    grouped = (heads, 2, half, rank) if for_gguf else (heads, half, 2, rank)
    return b.reshape(grouped).swapaxes(1, 2).reshape(out, rank)


def _interleaved_heads(name: str, base: BaseLayout) -> int | None:
    """Return the number of heads within which the rows are interleaved; None if they are in order."""
    if base.architecture not in _INTERLEAVED:
        return None
    if name.endswith("attn_q.weight"):
        return base.heads
    return base.kv_heads if name.endswith("attn_k.weight") else None


def _check_heads(base: BaseLayout) -> None:
    for name, shape in base.shapes.items():
        heads = _interleaved_heads(name, base)
        if heads is not None and (heads < 1 or shape[0] % (2 * heads)):
            raise EngineError(
                f"{base.path} is damaged: {name} has {shape[0]} rows, which don't make {heads} heads"
            )


@lru_cache(maxsize=4)
def _names(architecture: str, blocks: int) -> Any:
    import gguf

    for known, name in gguf.MODEL_ARCH_NAMES.items():
        if name == architecture:
            return gguf.get_tensor_name_map(known, blocks)
    raise IncompatibleAdapter(f"the installed gguf does not know {architecture!r}; run: pip install -U gguf")
