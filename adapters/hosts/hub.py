"""Base weights from the Hugging Face hub: out of the local cache, else downloaded.

Only files that training reads are downloaded: safetensors, tokenizer, configuration. No pickle, no code.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from burnish.adapters.errors import EngineError
from burnish.system.extras import how_to_install

logger = logging.getLogger(__name__)

# owner/name, as the hub allows them; with a dot, a slash or a tilde at the beginning it is a path.
_ID = re.compile(r"[A-Za-z0-9][\w-]*(\.[\w-]+)*/[A-Za-z0-9][\w-]*(\.[\w-]+)*", re.ASCII)
PATTERNS = [
    "*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer*", "vocab.json",
    "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template*",
]  # fmt: skip
_GB = 1e9


def hub_id(name: str) -> str | None:
    """Return ``name`` if it can be the ID of a model on the hub, e.g. "Qwen/Qwen3-0.6B"."""
    return name if _ID.fullmatch(name) else None


def cached(model: str) -> Path | None:
    """Return the directory of a model in the local cache, None without its weights; uses no network."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        return None
    try:
        directory = Path(snapshot_download(model, local_files_only=True, allow_patterns=PATTERNS))
    except LocalEntryNotFoundError:
        return None
    return directory if _whole(directory) else None


def downloaded(model: str) -> Path:
    """Return the directory of a model, downloaded if it isn't here. Raises EngineError, which says what to do."""
    if directory := cached(model):
        return directory
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise EngineError(
            f"{model} cannot be downloaded without huggingface_hub; run: {how_to_install('train')}, or set train.base "
            "to a directory"
        ) from error
    try:
        files = snapshot_download(model, allow_patterns=PATTERNS, dry_run=True)
        size = sum(file.file_size or 0 for file in files if file.will_download)
        logger.warning("downloading %s from the Hugging Face hub, %.1f GB", model, size / _GB)
        directory = Path(snapshot_download(model, allow_patterns=PATTERNS))
    # Its errors depend on the HTTP client of the release, and serving must go on after any of them.
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
        raise EngineError(
            f"{model} isn't a file here, and can't be downloaded from the Hugging Face hub ({reason}); "
            "check the name and the network (a gated model needs HF_TOKEN), or set train.base to a GGUF file or a "
            "directory on this machine"
        ) from error
    if not _whole(directory):
        raise EngineError(
            f"{model} has no *.safetensors with a config.json, and other formats could run code; choose another model"
        )
    return directory


def _whole(path: Path) -> bool:
    """Check that a snapshot is complete; an interrupted download lacks a shard."""
    if not (path / "config.json").exists():
        return False
    index = path / "model.safetensors.index.json"
    if index.exists():
        shards = set(re.findall(r'"([^"]+\.safetensors)"', index.read_text(encoding="utf-8")))
        return bool(shards) and all((path / shard).exists() for shard in shards)
    return any(path.glob("*.safetensors"))
