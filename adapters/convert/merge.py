"""Base + LoRA → one GGUF, for engines that take no adapters.

A changed tensor is stored finely enough that the change survives. Rounded to the 4 bits of the base, it would be the
base again: an adapter changes a weight by about .5 % of such a step. Everything else is copied byte for byte.
Needs no torch, and the memory of a few rows, whatever the size of the model.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, LlamaFileType
from gguf.quants import dequantize, quantize

from burnish.adapters.convert.fidelity import Fidelity
from burnish.adapters.convert.gguf import pairs_by_tensor, read_lora
from burnish.adapters.convert.gguf_layout import BaseLayout, open_gguf, read_base
from burnish.adapters.convert.peft import Array, Lora
from burnish.adapters.convert.room import check_disk, check_memory, copy, row_chunks, writing
from burnish.adapters.errors import IncompatibleAdapter, LostInRounding
from burnish.adapters.merging import Merged
from burnish.system import durable

Precision = Literal["q8_0", "f16"]

_TYPES = {"q8_0": GGMLQuantizationType.Q8_0, "f16": GGMLQuantizationType.F16}
_FILE_TYPES = {"q8_0": LlamaFileType.MOSTLY_Q8_0, "f16": LlamaFileType.MOSTLY_F16}
_FINE = (GGMLQuantizationType.F32, GGMLQuantizationType.F16)
# Weights on these grids fall back onto them: q8_0 keeps 4 % of a change, bf16 63 %.
_COARSE_GRIDS = (GGMLQuantizationType.Q8_0, GGMLQuantizationType.BF16)


def merge_rounded(adapter: Path, base: Path, target: Path) -> Merged:
    """Merge into q8_0, or into f16 if q8_0 would lose the adapter. Raises as merge does."""
    try:
        return merge(adapter, base, target, "q8_0")
    except LostInRounding:
        return merge(adapter, base, target, "f16")


def merge(adapter: Path, base: Path, target: Path, precision: Precision) -> Merged:
    """Write base + adapter as one GGUF, atomically, mode 0600. ``adapter``: a PEFT directory or a GGUF adapter.

    Changed tensors are stored in ``precision``, those of a q8_0 or bf16 base in f16; f16 and f32 stay.
    Raises CorruptAdapter, IncompatibleAdapter (for another base, or a type of the base that can't be read),
    LostInRounding, EngineError (the base is unreadable, too little disk or memory, no permission); nothing is left
    then.
    """
    layout = read_base(base)
    check_memory(adapter)
    peft = read_lora(adapter, layout)
    changes = {name: peft.scaled(lora) for name, lora in pairs_by_tensor(peft, layout).items()}
    return write_merged(changes, layout, target, precision)


def write_merged(changes: Mapping[str, Lora], base: BaseLayout, target: Path, precision: Precision) -> Merged:
    """Write the base with b @ a added to each named tensor; without changes, the base itself. Raises as merge does."""
    reader = open_gguf(base.path)
    if reader.endianess != GGUFEndian.LITTLE:
        raise IncompatibleAdapter(f"{base.path} is a big-endian GGUF; expected a little-endian one")
    tensors = _planned(reader, changes, precision)
    size = tensors[-1].end
    check_disk(target, size)
    fidelity = Fidelity()
    with writing(str(target)), base.path.open("rb") as source, durable.replacing(target) as temporary:
        with temporary.open("wb") as file:
            file.write(_head(reader, source, tensors))
            for tensor in tensors:
                file.write(bytes(tensor.start - file.tell()))
                _write_tensor(tensor, changes.get(tensor.original.name), source, file, fidelity)
            file.write(bytes(size - file.tell()))
        if changes:
            fidelity.check(precision)
    return Merged(fidelity.kept, fidelity.noise, size, _precision(tensors) or "")


@dataclass(frozen=True, slots=True)
class _Planned:
    """A tensor of the base, and its place in the new file."""

    original: Any
    """gguf's ReaderTensor."""
    type: GGMLQuantizationType
    start: int
    """Offset in the file, aligned."""
    end: int
    """Offset behind it and its padding."""

    @property
    def retyped(self) -> bool:
        return bool(self.type != self.original.tensor_type)

    @property
    def rows(self) -> int:
        return int(math.prod(self.original.shape[1:].tolist()))


def _planned(reader: Any, changes: Mapping[str, Lora], precision: Precision) -> list[_Planned]:
    alignment, position = int(reader.alignment), int(reader.data_offset)
    planned = []
    for tensor in sorted(reader.tensors, key=lambda tensor: tensor.data_offset):
        kind = tensor.tensor_type
        if tensor.name in changes and kind not in _FINE:
            kind = _TYPES["f16" if kind in _COARSE_GRIDS else precision]
        block, block_bytes = GGML_QUANT_SIZES[kind]
        end = position + int(tensor.n_elements) // block * block_bytes
        end += -end % alignment
        planned.append(_Planned(tensor, kind, position, end))
        position = end
    return planned


def _precision(tensors: list[_Planned]) -> Precision | None:
    """Return the coarsest type that replaces another one; None if all types are as before."""
    types = {tensor.type for tensor in tensors if tensor.retyped}
    precisions: tuple[Precision, ...] = ("q8_0", "f16")
    return next((precision for precision in precisions if _TYPES[precision] in types), None)


def _head(reader: Any, source: BinaryIO, tensors: list[_Planned]) -> bytes:
    """Return all bytes before the first tensor: the metadata as they are, but for types and offsets of tensors."""
    source.seek(0)
    head = bytearray(source.read(reader.data_offset))
    for tensor in tensors:
        *parts, _, _ = tensor.original.field.parts
        place = tensor.original.field.offset + sum(int(part.nbytes) for part in parts)
        struct.pack_into("<IQ", head, place, tensor.type, tensor.start - reader.data_offset)
    kind, precision = reader.get_field("general.file_type"), _precision(tensors)
    if kind is not None and precision:
        place = kind.offset + sum(int(part.nbytes) for part in kind.parts[:-1])
        struct.pack_into("<I", head, place, _FILE_TYPES[precision])
    return bytes(head)


def _write_tensor(
    tensor: _Planned, change: Lora | None, source: BinaryIO, file: BinaryIO, fidelity: Fidelity
) -> None:
    source.seek(tensor.original.data_offset)
    if change is None:
        copy(source, file, int(tensor.original.n_bytes))
        return
    row_bytes = int(tensor.original.n_bytes) // tensor.rows
    for rows in row_chunks(tensor.rows, int(tensor.original.shape[0])):
        b = change.b[rows]
        packed = np.frombuffer(source.read(len(b) * row_bytes), np.uint8).reshape(len(b), row_bytes)
        old = _dequantised(packed, tensor)
        delta = b @ change.a
        new = quantize(old + delta, tensor.type)
        file.write(np.ascontiguousarray(new).data)
        fidelity.add(dequantize(new.view(np.uint8), tensor.type).reshape(old.shape) - old, delta)


def _dequantised(packed: Any, tensor: _Planned) -> Array:
    kind = tensor.original.tensor_type
    try:
        return np.asarray(dequantize(packed, kind), np.float32)
    except NotImplementedError as error:
        raise IncompatibleAdapter(
            f"the base stores {tensor.original.name} as {kind.name}, which the installed gguf can't read; take the "
            "model in another quantisation, such as Q4_K_M or Q8_0"
        ) from error
