"""A LoRA in PEFT layout ↔ a GGUF adapter for llama.cpp.

Whatever one side can't express is refused, and no tensor is ever left out silently. Only labels (name, author, licence)
are dropped. Needs no torch.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from burnish.adapters import durable
from burnish.adapters.convert.gguf_layout import (
    BaseLayout,
    check_shape,
    field,
    gguf_name,
    modules_by_name,
    open_gguf,
    rows_for_gguf,
    rows_for_peft,
)
from burnish.adapters.convert.peft import Array, Lora, PeftAdapter, check_finite, read_peft, write_peft
from burnish.adapters.errors import AdapterError, CorruptAdapter, IncompatibleAdapter

_MATRIX = 2
# Each changes when or how the adapter applies.
_UNSUPPORTED = ("adapter.alora.invocation_tokens", "adapter.lora.prompt_prefix")


def to_gguf(adapter: Path, base: BaseLayout, target: Path) -> None:
    """Write the adapter of a PEFT directory as GGUF, atomically, mode 0600.

    Raises CorruptAdapter (missing, torn, NaN), IncompatibleAdapter (not plain LoRA, or of another base), OSError
    when it cannot be written; nothing is left then.
    """
    found = read_peft(adapter)
    tensors: dict[str, Array] = {}
    for module, lora in found.pairs.items():
        name = gguf_name(module, base)
        check_shape(module, lora, base.shapes[name])
        if f"{name}.lora_a" in tensors:
            raise IncompatibleAdapter(
                f"{adapter} has two modules that are {name} in GGUF; the second is {module}"
            )
        tensors[f"{name}.lora_a"] = lora.a
        tensors[f"{name}.lora_b"] = rows_for_gguf(name, lora.b, base)
    _write(target, base.architecture, _float32(found.alpha), tensors)


def _float32(alpha: float) -> float:
    """Round alpha as the file will.

    llama.cpp takes alpha 0 for "none given" and then scales by 1 (get_scale in src/llama-adapter.h), so that an adapter
    that is switched off would be fully on.
    """
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(alpha))
    if rounded == 0 or not np.isfinite(rounded):
        raise IncompatibleAdapter(
            f"lora_alpha {alpha} cannot be said in GGUF, where 0 means a scale of 1; "
            "serve the base model instead, or train with another lora_alpha"
        )
    return rounded


def _write(target: Path, architecture: str, alpha: float, tensors: dict[str, Array]) -> None:
    import gguf

    with durable.replacing(target) as temporary:
        writer = gguf.GGUFWriter(temporary, architecture)
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


def from_gguf(adapter: Path, base: BaseLayout, target: Path, base_model: str) -> None:
    """Write a GGUF adapter as a new PEFT directory, atomically; its values are float32.

    ``base`` is the model that it was made for, ``base_model`` how the configuration shall name that.
    Raises CorruptAdapter (missing, torn, NaN), IncompatibleAdapter (no plain LoRA, or of another base), FileExistsError
    when ``target`` exists, OSError when it cannot be written; nothing is left then.
    """
    write_peft(_read(adapter, base), target, base_model)


def _read(path: Path, base: BaseLayout) -> PeftAdapter:
    try:
        reader = open_gguf(path)
        _check_kind(path, reader, base)
        alpha = float(field(reader, "adapter.lora.alpha") or 0.0)
        halves = {tensor.name: _values(path, tensor) for tensor in reader.tensors}
    except AdapterError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise CorruptAdapter(f"{path} is missing or damaged: {error}") from error
    if not np.isfinite(alpha):
        raise CorruptAdapter(f"{path} says adapter.lora.alpha={alpha}; expected a finite number")
    pairs = _pairs(path, halves, base)
    return PeftAdapter(alpha or _alpha_of_scale_one(path, pairs), pairs)


def _check_kind(path: Path, reader: Any, base: BaseLayout) -> None:
    for key, expected in (
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
        ("general.architecture", base.architecture),
    ):
        found = field(reader, key)
        if found != expected:
            raise IncompatibleAdapter(
                f"{path} says {key}={found!r}; expected {expected!r}, a LoRA for {base.path.name}"
            )
    used = [key for key in _UNSUPPORTED if field(reader, key)]
    if used:
        raise IncompatibleAdapter(f"{path} uses {', '.join(used)}, which a PEFT LoRA cannot say")


def _values(path: Path, tensor: Any) -> Array:
    """Return a tensor as float32, row-major. Quantised ones become the values that they stand for."""
    from gguf.quants import dequantize

    try:
        array = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise IncompatibleAdapter(
            f"{path}: {tensor.name} is of a type that cannot be read: {error}"
        ) from error
    array = np.asarray(array, np.float32).reshape([int(n) for n in reversed(tensor.shape)])
    check_finite(path, tensor.name, array)
    return array


def _pairs(path: Path, halves: dict[str, Array], base: BaseLayout) -> dict[str, Lora]:
    """Sort the tensors into one pair a module, rows in Hugging Face's order."""
    modules = modules_by_name(base)
    names = dict.fromkeys(name.removesuffix(".lora_a").removesuffix(".lora_b") for name in halves)
    pairs = {}
    for name in names:
        if name in halves:
            raise IncompatibleAdapter(f"{path}: {name} is no part of a plain LoRA, and would be lost")
        if name not in modules:
            kind = "a trained embedding" if name == "token_embd.weight" else "no linear layer of the base"
            raise IncompatibleAdapter(f"{path}: {name} is {kind}, which cannot be converted")
        a, b = halves.get(f"{name}.lora_a"), halves.get(f"{name}.lora_b")
        if a is None or b is None:
            raise CorruptAdapter(f"{path}: {name} has only one half; expected lora_a and lora_b")
        if not a.ndim == b.ndim == _MATRIX or a.shape[0] != b.shape[1]:
            raise CorruptAdapter(
                f"{path}: {name} has lora_a {a.shape} and lora_b {b.shape}; their ranks differ"
            )
        check_shape(modules[name], Lora(a, b), base.shapes[name])
        pairs[modules[name]] = Lora(a, rows_for_peft(name, b, base))
    if not pairs:
        raise CorruptAdapter(f"{path} holds no tensor")
    return {module: pairs[module] for module in sorted(pairs)}


def _alpha_of_scale_one(path: Path, pairs: dict[str, Lora]) -> float:
    """Return the alpha that means what llama.cpp does without one: it scales by 1."""
    ranks = {lora.rank for lora in pairs.values()}
    if len(ranks) > 1:
        raise IncompatibleAdapter(
            f"{path} has no alpha, and modules of the ranks {sorted(ranks)}; no single lora_alpha says that"
        )
    return float(ranks.pop())
