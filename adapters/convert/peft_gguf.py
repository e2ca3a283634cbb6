"""A LoRA in PEFT layout → a GGUF adapter for llama.cpp.

Whatever the format cannot carry is refused; no tensor is ever left out silently. Needs no torch.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from burnish.adapters.convert.gguf_layout import BaseLayout, check_shape, gguf_name, rows_for_gguf
from burnish.adapters.convert.peft import Array, read_peft
from burnish.adapters.errors import IncompatibleAdapter


def convert(adapter: Path, base: BaseLayout, target: Path) -> None:
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

    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
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
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
