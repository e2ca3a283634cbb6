"""Base weights that torch can train on, made from the very file that the engine serves.

A GGUF file is dequantised once into ``<weights_cache>/<digest>/`` (bf16, safetensors, Hugging Face layout), so
what is trained is what is served; a Hugging Face directory is used where it lies. Only safetensors are read and
no code of a model's directory ever runs. Does not download anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from burnish.training.errors import JobError, MissingDependency

DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
GGUF_MAGIC = b"GGUF"


def prepared_weights(base_weights: Path, digest: str, cache: Path) -> Path:
    """Return a Hugging Face directory that holds the weights of ``base_weights``.

    ``base_weights`` is a GGUF file or such a directory already, ``digest`` "sha256:<hex>" of the GGUF file, and
    ``cache`` where dequantised weights are kept between runs. Safe against a kill and against two at once.
    Raises JobError when the weights are missing, of another kind, or not the ones that the digest names.
    """
    if base_weights.is_dir():
        return _checked_directory(base_weights)
    named = DIGEST.fullmatch(digest)
    if named is None:
        raise JobError(f"base_digest is {digest!r}, expected sha256: and 64 hexadecimal digits")
    target = cache / named[1]
    if target.is_dir():
        return _checked_directory(target)
    _check_gguf(base_weights)
    with _locked(cache):
        if not target.is_dir():
            _fill(base_weights, named[1], target)
    return target


def _checked_directory(path: Path) -> Path:
    if not (path / "config.json").is_file():
        raise JobError(f"{path} has no config.json: name a GGUF file or a Hugging Face model directory")
    if not any(path.glob("*.safetensors")):
        raise JobError(f"{path} has no *.safetensors file: other weight formats can run code and are refused")
    return path


def _check_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise JobError(f"cannot read the base weights {path}: {error}") from error
    if magic != GGUF_MAGIC:
        raise JobError(f"{path} is no GGUF file: name a GGUF file or a Hugging Face model directory")


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Let one process at a time fill the cache; the kernel drops the lock of a process that is killed."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(cache / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fill(gguf: Path, digest: str, target: Path) -> None:
    with gguf.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        raise JobError(f"{gguf} has changed: its sha256 is {found}, the job was made for {digest}")
    for leftover in target.parent.glob(".*.partial"):  # of a run that was killed: we hold the lock
        shutil.rmtree(leftover)
    partial = target.with_name(f".{digest}.partial")
    partial.mkdir(mode=0o700)
    _dequantise(gguf, partial)
    for file_path in partial.iterdir():
        file_path.chmod(0o600)
        sync(file_path)
    partial.rename(target)
    sync(target.parent)


def _dequantise(gguf: Path, target: Path) -> None:
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        raise MissingDependency.because(error) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
            local_files_only=True,
        )
    except (ValueError, KeyError, NotImplementedError, ImportError) as error:
        raise JobError(f"transformers cannot read {gguf}: {error}") from error
    tokenizer.save_pretrained(target)
    model.save_pretrained(target, safe_serialization=True)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
