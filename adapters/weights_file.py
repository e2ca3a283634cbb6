"""Check that a directory is a sound LoRA adapter. Only files are read: no framework is needed, and no code is run.

A directory has exactly ``adapter_model.safetensors`` and ``adapter_config.json``. Every number is checked: one NaN
makes an engine answer nonsense to everybody.
Format: https://huggingface.co/docs/safetensors (u64 header length, JSON header, tensors back to back).
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from burnish.adapters.errors import CorruptAdapter

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
ALLOWED = frozenset({WEIGHTS, CONFIG})

# A rank-256 adapter on all layers of a 70B model has about 3 GB.
MAX_FILE_BYTES = 8 * 1024**3
MAX_CONFIG_BYTES = 1024**2
# So much is checked at a time, because a big adapter must not fill the memory of the serving process.
CHUNK_BYTES = 16 * 1024**2

_LENGTH_BYTES = 8
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class Tensor(NamedTuple):
    """A tensor of a safetensors file."""

    name: str
    kind: str
    """Of its numbers, e.g. "BF16"."""
    shape: tuple[int, ...]
    start: int
    """Offset in the file."""
    size: int
    """Bytes."""


def tensors_in(path: Path) -> list[Tensor]:
    """Return the tensors of a safetensors file, in its order. Raises OSError, SafetensorError."""
    # The library checks that the header fits the file, and that the tensors fill it back to back.
    with safe_open(path, "numpy"):
        pass
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    tensors = [
        Tensor(name, entry["dtype"], tuple(entry["shape"]), _LENGTH_BYTES + length + begin, end - begin)
        for name, entry in header.items()
        for begin, end in [entry["data_offsets"]]
    ]
    return sorted(tensors, key=lambda tensor: tensor.start)


def widened(content: bytes, kind: str) -> NDArray[Any]:
    """Return numbers of a safetensors file; bfloat16 as float32, which holds it exactly."""
    numbers = np.frombuffer(content, _DTYPES[kind])
    return (numbers.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else numbers


def check_adapter(directory: Path) -> None:
    """Raise CorruptAdapter, which names the fault, unless a directory is a sound LoRA adapter."""
    check_names(directory, ALLOWED)
    _check_config(directory / CONFIG)
    _check_weights(directory / WEIGHTS)


def check_names(directory: Path, allowed: frozenset[str]) -> None:
    """Raise CorruptAdapter unless a directory has exactly these names, each a regular file of bounded size."""
    try:
        statuses = {path.name: path.lstat() for path in directory.iterdir()}
    except OSError as error:
        raise CorruptAdapter(f"cannot read the adapter directory {directory}: {error.strerror}") from error
    if missing := sorted(allowed - statuses.keys()):
        raise CorruptAdapter(f"{directory} has no {' and no '.join(missing)}")
    if extra := sorted(statuses.keys() - allowed):
        raise CorruptAdapter(
            f"{directory} has a file {extra[0]!r}; expected {' and '.join(sorted(allowed))} only"
        )
    for name, status in statuses.items():
        if not stat.S_ISREG(status.st_mode):
            raise CorruptAdapter(f"{directory / name} is not a regular file (links are refused)")
        if status.st_size > MAX_FILE_BYTES:
            raise CorruptAdapter(f"{directory / name} has {status.st_size} bytes, limit {MAX_FILE_BYTES}")


def _check_config(path: Path) -> None:
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise CorruptAdapter(f"{path} has {path.stat().st_size} bytes, limit {MAX_CONFIG_BYTES}")
    config = _parse_object(path, path.read_bytes())
    if config.get("peft_type") != "LORA":
        raise CorruptAdapter(f"{path}: peft_type is {config.get('peft_type')!r}, expected 'LORA'")
    rank = config.get("r")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise CorruptAdapter(f"{path}: rank r is {rank!r}, expected a whole number above 0")


def _check_weights(path: Path) -> None:
    try:
        tensors = tensors_in(path)
    except (OSError, SafetensorError) as error:
        raise CorruptAdapter(f"{path} is cut, damaged, or isn't safetensors: {error}") from error
    content = np.memmap(path, dtype=np.uint8, mode="r")
    nonzero = False
    for name, kind, _, start, size in tensors:
        if kind not in _DTYPES:
            raise CorruptAdapter(
                f"{path}: tensor {name} has dtype {kind!r}, expected one of {', '.join(_DTYPES)}"
            )
        if not size:
            raise CorruptAdapter(f"{path}: tensor {name} is empty")
        for place in range(start, start + size, CHUNK_BYTES):
            numbers = widened(content[place : min(place + CHUNK_BYTES, start + size)].tobytes(), kind)
            if not np.isfinite(numbers).all():
                raise CorruptAdapter(
                    f"{path}: tensor {name} holds NaN or infinite numbers; training diverged"
                )
            nonzero = nonzero or ("lora_B" in name and bool(numbers.any()))
    for factor in ("lora_A", "lora_B"):
        if not any(factor in tensor.name for tensor in tensors):
            raise CorruptAdapter(f"{path}: there is no {factor} tensor, so this isn't a LoRA")
    if not nonzero:
        raise CorruptAdapter(
            f"{path}: every lora_B is zero, so the adapter changes nothing; nothing was learnt"
        )


def _parse_object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptAdapter(f"{path} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise CorruptAdapter(f"{path} has a JSON {type(parsed).__name__}, expected an object")
    return parsed
