"""A LoRA in PEFT layout ↔ a GGUF adapter for llama.cpp.

Whatever one side can't express is refused, and no tensor is ever left out silently. Only labels (name, author, licence)
are dropped. Needs no torch.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from burnish.adapters.convert.gguf_layout import (
    BaseLayout,
    field,
    gguf_name,
    modules_by_name,
    open_gguf,
    reordered,
)
from burnish.adapters.convert.peft import (
    Array,
    Lora,
    PeftAdapter,
    check_finite,
    check_shape,
    paired,
    read_peft,
)
from burnish.adapters.errors import AdapterError, CorruptAdapter, IncompatibleAdapter
from burnish.system import durable

# With these keys an adapter applies only sometimes, or in another way.
_UNSUPPORTED = ("adapter.alora.invocation_tokens", "adapter.lora.prompt_prefix")


def to_gguf(adapter: Path, base: BaseLayout, target: Path) -> None:
    """Write the adapter of a PEFT directory as GGUF, atomically, mode 0600.

    Raises CorruptAdapter (missing, cut, NaN), IncompatibleAdapter (not a plain LoRA, or made for another base), OSError
    when it cannot be written; nothing is left then.
    """
    peft = read_peft(adapter)
    tensors: dict[str, Array] = {}
    for name, lora in pairs_by_tensor(peft, base).items():
        tensors[f"{name}.lora_a"] = lora.a
        tensors[f"{name}.lora_b"] = lora.b
    _write(target, base.architecture, _float32(peft.alpha), tensors)


def read_lora(path: Path, base: BaseLayout) -> PeftAdapter:
    """Read a PEFT directory or a GGUF adapter. Raises CorruptAdapter, IncompatibleAdapter."""
    return read_peft(path) if path.is_dir() else _read(path, base)


def pairs_by_tensor(adapter: PeftAdapter, base: BaseLayout) -> dict[str, Lora]:
    """Return GGUF tensor name → its pair, b's rows in GGUF's order. Raises IncompatibleAdapter if the base lacks it."""
    pairs: dict[str, Lora] = {}
    for module, lora in adapter.pairs.items():
        name = gguf_name(module, base)
        check_shape(module, lora, base.shapes[name])
        if name in pairs:
            raise IncompatibleAdapter(
                f"the adapter has two modules that are both {name} in GGUF; the second is {module}"
            )
        pairs[name] = Lora(lora.a, reordered(name, lora.b, base, for_gguf=True))
    return pairs


def _float32(alpha: float) -> float:
    """Round alpha to float32, as the file does.

    llama.cpp reads alpha 0 as "not given" and then scales by 1 (get_scale in src/llama-adapter.h): an adapter that is
    switched off would be fully on.
    """
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(alpha))
    if rounded == 0 or not np.isfinite(rounded):
        raise IncompatibleAdapter(
            f"lora_alpha {alpha} can't be stored in GGUF, where 0 means a scale of 1; "
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
        try:
            open_gguf(temporary)
        except ValueError as error:  # on a full disk numpy's tofile may drop the end of a tensor silently
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


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
        raise CorruptAdapter(f"{path} has adapter.lora.alpha={alpha}; expected a finite number")
    pairs = _pairs(path, halves, base)
    return PeftAdapter(alpha or _alpha_of_scale_one(path, pairs), pairs)


def _check_kind(path: Path, reader: Any, base: BaseLayout) -> None:
    for key, expected in (
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
        ("general.architecture", base.architecture),
    ):
        actual = field(reader, key)
        if actual != expected:
            raise IncompatibleAdapter(
                f"{path} has {key}={actual!r}; expected {expected!r}, that is a LoRA for {base.path.name}"
            )
    used = [key for key in _UNSUPPORTED if field(reader, key)]
    if used:
        raise IncompatibleAdapter(f"{path} uses {', '.join(used)}, which a PEFT LoRA can't express")


def _values(path: Path, tensor: Any) -> Array:
    """Return a tensor as float32, row-major, dequantised if need be."""
    from gguf.quants import dequantize

    try:
        array = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise IncompatibleAdapter(f"{path}: the type of {tensor.name} can't be read: {error}") from error
    array = np.asarray(array, np.float32).reshape([int(n) for n in reversed(tensor.shape)])
    check_finite(path, tensor.name, array)
    return array


def _pairs(path: Path, tensors: dict[str, Array], base: BaseLayout) -> dict[str, Lora]:
    """Return the pair of each module, with its rows in Hugging Face's order."""
    modules = modules_by_name(base)
    halves: dict[str, dict[str, Array]] = {}
    for tensor, array in tensors.items():
        name, _, half = tensor.rpartition(".lora_")
        if half not in ("a", "b"):
            raise IncompatibleAdapter(
                f"{path}: {tensor} isn't part of a plain LoRA; leaving it out would change replies"
            )
        if name not in modules:
            embedding = name == "token_embd.weight"
            kind = "is a trained embedding" if embedding else "isn't a linear layer of the base"
            raise IncompatibleAdapter(f"{path}: {name} {kind}; only linear layers can be converted")
        halves.setdefault(modules[name], {})[half] = array
    pairs = paired(path, halves, lambda _: None)
    for name, module in modules.items():
        if lora := pairs.get(module):
            check_shape(module, lora, base.shapes[name])
            pairs[module] = Lora(lora.a, reordered(name, lora.b, base, for_gguf=False))
    return pairs


def _alpha_of_scale_one(path: Path, pairs: dict[str, Lora]) -> float:
    """Return the alpha for a scale of 1, which llama.cpp uses if there is none."""
    ranks = {lora.rank for lora in pairs.values()}
    if len(ranks) > 1:
        raise IncompatibleAdapter(
            f"{path} has no alpha, and modules of the ranks {sorted(ranks)}; no lora_alpha gives all a scale of 1"
        )
    return float(ranks.pop())
