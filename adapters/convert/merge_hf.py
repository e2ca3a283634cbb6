"""Base + LoRA → a Hugging Face directory, for everything that loads or converts one.

Changed tensors become float32: bfloat16, which most models are stored in, keeps only about 63 % of an adapter's change.
Everything else is copied byte for byte. Needs neither torch nor transformers, and the memory of a few rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from burnish.adapters.convert.fidelity import Fidelity
from burnish.adapters.convert.peft import Lora, check_shape, read_peft, renamed, to_float32
from burnish.adapters.convert.room import check_disk, check_memory, copy, row_chunks, writing
from burnish.adapters.errors import EngineError, IncompatibleAdapter
from burnish.adapters.merging import Merged
from burnish.adapters.weights_file import Tensor, tensors_in
from burnish.system import durable

WEIGHTS = "*.safetensors"
CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
# Configuration, tokenizer and chat template; not another program's files, such as burnish's own marker.
COPIED = ("*.json", "*.jinja", "*.txt", "*.model")
NOT_COPIED = ("burnish.json", CONFIG, INDEX)
FLOAT32_BYTES = 4
LENGTH_BYTES = 8


def merge_hf(adapter: Path, base: Path, target: Path) -> Merged:
    """Write base + adapter as a new Hugging Face directory, atomically, for its owner only. Both are directories.

    Raises CorruptAdapter, IncompatibleAdapter (for another base, or a quantised one), EngineError (the base is
    unreadable, too little disk or memory, no permission); nothing is left then.
    """
    check_memory(adapter)
    peft = read_peft(adapter)
    files = {path: _tensors(path) for path in sorted(base.glob(WEIGHTS))}
    if not files:
        raise EngineError(f"{base} has no {WEIGHTS}; expected a Hugging Face model directory")
    stored = [tensor.name.removesuffix(".weight") for tensors in files.values() for tensor in tensors]
    changes = {f"{module}.weight": peft.scaled(lora) for module, lora in renamed(peft, stored).pairs.items()}
    _check_fitting(changes, [tensor for tensors in files.values() for tensor in tensors], base)
    config = _config(base / CONFIG)
    size = sum(_new_size(tensor, changes) for tensors in files.values() for tensor in tensors)
    check_disk(target, size)
    fidelity = Fidelity()
    with writing(str(target)), durable.building(target) as partial:
        for path, tensors in files.items():
            with path.open("rb") as source, durable.created(partial / path.name) as file:
                _write(source, tensors, changes, file, fidelity)
        _copy_others(base, partial, config, size)
        fidelity.check("float32")
    return Merged(fidelity.kept, fidelity.noise, size, "f32")


def _tensors(path: Path) -> list[Tensor]:
    try:
        return tensors_in(path)
    except (OSError, SafetensorError) as error:
        raise EngineError(f"cannot read the model {path} as safetensors: {error}") from error


def _check_fitting(changes: Mapping[str, Lora], tensors: list[Tensor], base: Path) -> None:
    by_name = {tensor.name: tensor for tensor in tensors}
    for name, lora in changes.items():
        if name not in by_name:
            raise IncompatibleAdapter(
                f"{base} has no tensor {name}: it is another model, or stores this layer fused with others"
            )
        if by_name[name].kind not in ("F32", "F16", "BF16"):
            raise IncompatibleAdapter(
                f"{base} is quantised: {name} is of type {by_name[name].kind}; merge into the full weights of the model"
            )
        check_shape(name, lora, by_name[name].shape)


def _new_size(tensor: Tensor, changes: Mapping[str, Lora]) -> int:
    return FLOAT32_BYTES * math.prod(tensor.shape) if tensor.name in changes else tensor.size


def _write(
    source: BinaryIO, tensors: list[Tensor], changes: Mapping[str, Lora], file: BinaryIO, fidelity: Fidelity
) -> None:
    file.write(_head(tensors, changes))
    for tensor in tensors:
        source.seek(tensor.start)
        lora = changes.get(tensor.name)
        if lora is None:
            copy(source, file, tensor.size)
            continue
        height, width = tensor.shape
        for rows in row_chunks(height, width):
            b = lora.b[rows]
            chunk = source.read(len(b) * tensor.size // height)
            old = to_float32(tensor.name, tensor.kind, chunk, (len(b), width))
            delta = b @ lora.a
            new = old + delta
            file.write(new.astype("<f4", copy=False).data)
            fidelity.add(new - old, delta)


def _head(tensors: list[Tensor], changes: Mapping[str, Lora]) -> bytes:
    """Return the length and the list of tensors, padded as the format wants it."""
    listed: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for tensor in tensors:
        end = position + _new_size(tensor, changes)
        kind = "F32" if tensor.name in changes else tensor.kind
        listed[tensor.name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": (position, end)}
        position = end
    text = json.dumps(listed).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _config(path: Path) -> bytes:
    """Return the configuration for float32. Raises EngineError."""
    try:
        config = json.loads(path.read_bytes())
        for part in (config, config.get("text_config") or {}):
            part.pop("torch_dtype", None)  # the older name
            part["dtype"] = "float32"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise EngineError(f"{path} doesn't describe a model: {error!r}") from error
    return json.dumps(config, indent=2).encode()


def _copy_others(base: Path, target: Path, config: bytes, size: int) -> None:
    for path in sorted({path for pattern in COPIED for path in base.glob(pattern)}):
        if path.name not in NOT_COPIED and not path.name.startswith("."):
            durable.create(target / path.name, path.read_bytes())
    durable.create(target / CONFIG, config)
    if (base / INDEX).exists():
        index = json.loads((base / INDEX).read_bytes())
        index["metadata"] = {"total_size": size}
        durable.create(target / INDEX, json.dumps(index, indent=2).encode())
