"""A LoRA in PEFT layout → a GGUF adapter for llama.cpp.

Only the llama architecture, whose q and k rows llama.cpp keeps in another order than Hugging Face does.
Whatever the format cannot carry is refused; no tensor is ever left out silently. Needs no torch.
"""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from burnish.adapters.errors import CorruptAdapter, EngineError, IncompatibleAdapter

Array = NDArray[np.float32]

_ARCHITECTURE = "llama"
_TENSOR = re.compile(r"base_model\.model\.(?P<module>[\w.]+)\.lora_(?P<half>[AB])\.weight")

_MATRIX = 2

# Each changes what the weights mean, and llama.cpp's adapter format has no word for it.
_UNSUPPORTED = (
    "use_dora", "modules_to_save", "lora_bias", "layer_replication", "alpha_pattern", "rank_pattern",
    "trainable_token_indices", "target_parameters", "fan_in_fan_out", "alora_invocation_tokens", "use_qalora",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BaseLayout:
    """What of a base GGUF decides how its adapters look."""

    path: Path
    blocks: int
    heads: int
    kv_heads: int
    shapes: dict[str, tuple[int, ...]]
    """GGUF tensor name → shape in row-major order: (out, in)."""


@dataclass(frozen=True, slots=True)
class _Lora:
    """The pair of one module, as PEFT has it: the weight's change is scale · b @ a."""

    a: Array
    """(r, in)"""
    b: Array
    """(out, r)"""


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
    config = _read_config(adapter / "adapter_config.json")
    pairs = _pairs(_read_tensors(adapter / "adapter_model.safetensors"), int(config["r"]))
    alpha = float(config["lora_alpha"])
    if config.get("use_rslora"):
        # rsLoRA scales by alpha/sqrt(r) where llama.cpp computes alpha/r (Kalajdzievski, arXiv 2312.03732).
        alpha *= math.sqrt(config["r"])
    tensors: dict[str, Array] = {}
    for module in sorted(pairs):  # so that the same adapter gives the same bytes
        lora, name = pairs[module], _name(module, base)
        _check_shape(module, lora, base.shapes[name])
        tensors[f"{name}.lora_a"] = lora.a
        tensors[f"{name}.lora_b"] = _rows_in_order(name, lora.b, base)
    _write(target, alpha, tensors)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptAdapter(f"{path} is missing or damaged: {error!r}") from error
    if rank < 1 or not math.isfinite(alpha):
        raise CorruptAdapter(f"{path} says r={rank}, lora_alpha={alpha}; expected r >= 1 and a finite alpha")
    if config.get("peft_type") != "LORA":
        raise IncompatibleAdapter(f"{path} is of type {config.get('peft_type')!r}; expected 'LORA'")
    used = [name for name in _UNSUPPORTED if config.get(name)]
    if config.get("bias", "none") != "none":
        used.append("bias")
    if used:
        raise IncompatibleAdapter(
            f"{path} uses {', '.join(used)}, which llama.cpp cannot serve; train a plain LoRA"
        )
    return dict(config)


def _read_tensors(path: Path) -> dict[str, Array]:
    try:
        found = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except (OSError, SafetensorError) as error:
        raise CorruptAdapter(f"{path} is missing or damaged: {error}") from error
    tensors = {name: _to_float32(name, tensor) for name, tensor in found}
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise CorruptAdapter(
                f"{path}: {name} holds NaN or infinite values; the version must not be served"
            )
    return tensors


def _to_float32(name: str, tensor: dict[str, Any]) -> Array:
    """Widen to float32, which holds float16 and bfloat16 exactly."""
    data, kind = bytes(tensor["data"]), tensor["dtype"]
    if kind == "BF16":
        array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in ("F32", "F16"):
        array = np.frombuffer(data, "<f4" if kind == "F32" else "<f2").astype(np.float32)
    else:
        raise IncompatibleAdapter(f"{name} is of type {kind}; expected F32, F16 or BF16")
    return array.reshape(tensor["shape"])


def _pairs(tensors: dict[str, Array], rank: int) -> dict[str, _Lora]:
    """Sort the tensors into one pair a module."""
    halves: dict[str, dict[str, Array]] = {}
    for name, array in tensors.items():
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise IncompatibleAdapter(
                f"tensor {name!r} is no part of a plain LoRA; leaving it out would change replies"
            )
        halves.setdefault(match["module"], {})[match["half"]] = array
    if not halves:
        raise CorruptAdapter("the adapter holds no tensor")
    for module, pair in halves.items():
        if pair.keys() != {"A", "B"}:
            raise CorruptAdapter(f"{module} has only lora_{''.join(pair)}; expected lora_A and lora_B")
        a, b = pair["A"], pair["B"]
        if not a.ndim == b.ndim == _MATRIX or not a.shape[0] == b.shape[1] == rank:
            raise CorruptAdapter(
                f"{module} has lora_A {a.shape} and lora_B {b.shape}; expected rank {rank} in both"
            )
    return {module: _Lora(pair["A"], pair["B"]) for module, pair in halves.items()}


def _name(module: str, base: BaseLayout) -> str:
    """Return the GGUF name of a Hugging Face module's weight."""
    import gguf

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, base.blocks)
    name = names.get_name(f"{module}.weight", try_suffixes=(".weight",))
    if name is None or name not in base.shapes:
        raise IncompatibleAdapter(f"the base {base.path.name} has no counterpart of {module}")
    return str(name)


def _check_shape(module: str, lora: _Lora, base: tuple[int, ...]) -> None:
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
