"""A LoRA in PEFT layout → a GGUF adapter for llama.cpp.

Only the llama architecture, whose q and k rows llama.cpp keeps in another order than Hugging Face does.
Whatever the format cannot carry is refused; no tensor is ever left out silently. Needs no torch.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from burnish.adapters.convert.peft import Array, Lora, read_peft
from burnish.adapters.errors import EngineError, IncompatibleAdapter

_ARCHITECTURE = "llama"


@dataclass(frozen=True, slots=True)
class BaseLayout:
    """What of a base GGUF decides how its adapters look."""

    path: Path
    blocks: int
    heads: int
    kv_heads: int
    shapes: dict[str, tuple[int, ...]]
    """GGUF tensor name → shape in row-major order: (out, in)."""


def read_base(path: Path) -> BaseLayout:
    """Read the layout of a base GGUF. Raises EngineError, IncompatibleAdapter (another architecture)."""
    import gguf

    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot read the model {path} as GGUF: {error}") from error

    def field(key: str) -> Any:
        found = reader.get_field(key)
        if found is None:
            raise EngineError(f"the model {path} has no {key}; it is no complete GGUF of a language model")
        return found.contents()

    architecture = field("general.architecture")
    if architecture != _ARCHITECTURE:
        raise IncompatibleAdapter(
            f"{path} has the architecture {architecture!r}; only {_ARCHITECTURE!r} adapters can be converted"
        )
    heads = int(field("llama.attention.head_count"))
    kv_heads = reader.get_field("llama.attention.head_count_kv")
    return BaseLayout(
        path,
        int(field("llama.block_count")),
        heads,
        int(kv_heads.contents()) if kv_heads else heads,
        {tensor.name: tuple(int(n) for n in reversed(tensor.shape)) for tensor in reader.tensors},
    )


def convert(adapter: Path, base: BaseLayout, target: Path) -> None:
    """Write the adapter of a PEFT directory as GGUF, atomically, mode 0600.

    Raises CorruptAdapter (missing, torn, NaN), IncompatibleAdapter (not plain LoRA, or of another base).
    """
    found = read_peft(adapter)
    tensors: dict[str, Array] = {}
    for module, lora in found.pairs.items():
        name = _name(module, base)
        _check_shape(module, lora, base.shapes[name])
        tensors[f"{name}.lora_a"] = lora.a
        tensors[f"{name}.lora_b"] = _rows_in_order(name, lora.b, base)
    _write(target, found.alpha, tensors)


def _name(module: str, base: BaseLayout) -> str:
    """Return the GGUF name of a Hugging Face module's weight."""
    import gguf

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, base.blocks)
    name = names.get_name(f"{module}.weight", try_suffixes=(".weight",))
    if name is None or name not in base.shapes:
        raise IncompatibleAdapter(f"the base {base.path.name} has no counterpart of {module}")
    return str(name)


def _check_shape(module: str, lora: Lora, base: tuple[int, ...]) -> None:
    shape = (lora.b.shape[0], lora.a.shape[1])
    if shape != base:
        raise IncompatibleAdapter(
            f"{module} changes a {shape} weight, the base has {base}: it is of another model"
        )


def _rows_in_order(name: str, b: Array, base: BaseLayout) -> Array:
    """Put the rows of lora_B into llama.cpp's order.

    Hugging Face pairs rotary dimension i with i + d/2, llama.cpp's llama architecture pairs 2i with 2i + 1, so
    the rows of q and k are interleaved within each head (as llama.cpp's convert_hf_to_gguf.py does). lora_A is
    untouched, since permuting the rows of B @ A permutes those of B.
    """
    if name.endswith("attn_q.weight"):
        heads = base.heads
    elif name.endswith("attn_k.weight"):
        heads = base.kv_heads
    else:
        return b
    out, rank = b.shape
    return b.reshape(heads, 2, out // heads // 2, rank).swapaxes(1, 2).reshape(out, rank)


def _write(target: Path, alpha: float, tensors: dict[str, Array]) -> None:
    import gguf

    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
        writer = gguf.GGUFWriter(temporary, _ARCHITECTURE)
        writer.add_string("general.type", "adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", alpha)
        for name, array in tensors.items():
            writer.add_tensor(name, np.ascontiguousarray(array))
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
        except OSError:
            with suppress(OSError):  # on a full disk what is buffered cannot be written either
                writer.close()
            raise
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
