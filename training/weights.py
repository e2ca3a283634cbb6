"""Base weights that torch can train on, made from the very file that the engine serves.

A GGUF file is dequantised once into ``<weights_cache>/<digest>/`` (bf16, safetensors, Hugging Face layout), so
what is trained is what is served; a Hugging Face directory is used where it lies. Only safetensors are read and
code in a model directory never runs. Downloads nothing.

``training.gguf_config`` reads the other settings of a GGUF.
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
from typing import Any

from burnish.system import durable
from burnish.training.errors import JobError, MissingDependency
from burnish.training.gguf_config import check_weights, complete, read_gguf

DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
GGUF_MAGIC = b"GGUF"
# Version of the rules that made a directory.
MARKER = "burnish.json"
FORMAT = '{"format": 2}\n'


def prepared_weights(base_weights: Path, digest: str, cache: Path) -> Path:
    """Return a Hugging Face directory that holds the weights of ``base_weights``.

    ``base_weights`` is a GGUF file or such a directory already, ``digest`` "sha256:<hex>" of the GGUF file, and
    ``cache`` where dequantised weights are kept between runs. Safe against a kill and against two at once.
    Raises JobError when the weights are missing, of another kind, or not the ones that the digest names.
    """
    if base_weights.is_dir():
        return _checked_directory(base_weights)
    match = DIGEST.fullmatch(digest)
    if match is None:
        raise JobError(f"base_digest is {digest!r}, expected sha256: and 64 hexadecimal digits")
    target = cache / match[1]
    if _is_current(target):
        return _checked_directory(target)
    _check_gguf(base_weights)
    with _locked(cache):
        if not _is_current(target):
            _check_digest(base_weights, match[1])
            shutil.rmtree(target, ignore_errors=True)  # of other rules
            _fill(base_weights, target)
    return target


def _is_current(target: Path) -> bool:
    marker = target / MARKER
    return marker.is_file() and marker.read_text(encoding="utf-8") == FORMAT


def _checked_directory(path: Path) -> Path:
    if not (path / "config.json").is_file():
        raise JobError(
            f"{path} has no config.json: name the GGUF file or Hugging Face directory that the engine serves"
        )
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
        raise JobError(
            f"{path} is not a GGUF file: name the GGUF file or Hugging Face directory that the engine serves"
        )


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


def _check_digest(gguf: Path, digest: str) -> None:
    with gguf.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum != digest:
        raise JobError(f"{gguf} has changed: its sha256 is {checksum}, the job was made for {digest}")


def _fill(gguf: Path, target: Path) -> None:
    for leftover in target.parent.glob(".*.partial"):  # of a run that was killed: we hold the lock
        shutil.rmtree(leftover)
    partial = target.with_name(f".{target.name}.partial")
    partial.mkdir(mode=0o700)
    _dequantise(gguf, partial)
    for file_path in partial.iterdir():
        file_path.chmod(0o600)
        durable.sync(file_path)
    durable.replace(partial / MARKER, FORMAT)  # last, so that an incomplete directory has none
    partial.rename(target)
    durable.sync(target.parent)


def _dequantise(gguf: Path, target: Path) -> None:
    where: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    with _reading(gguf):
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

        described = read_gguf(gguf)
        config = AutoConfig.from_pretrained(gguf.parent, **where)
        complete(config, described)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            config=config,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
            **where,
        )
    check_weights(model, described)
    model.generation_config.eos_token_id = described.ends or tokenizer.eos_token_id
    tokenizer.save_pretrained(target)
    model.save_pretrained(target, safe_serialization=True)


@contextmanager
def _reading(gguf: Path) -> Iterator[None]:
    """Turn what transformers raises on a GGUF that it cannot read into one error."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependency.because(error) from error
    try:
        yield
    except JobError:
        raise
    # RuntimeError: the weights have other shapes than the keys say.
    except (ValueError, KeyError, NotImplementedError, ImportError, RuntimeError) as error:
        raise JobError(f"transformers cannot read {gguf}: {error}") from error
