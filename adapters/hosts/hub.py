"""Base weights that have a name on the Hugging Face hub: in the local cache, else downloaded.

Only what training reads is ever fetched: safetensors, tokenizer, configuration. No pickle, no code.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from burnish.adapters.errors import EngineError

logger = logging.getLogger(__name__)

# owner/name, each as the hub allows them; what begins with a dot, a slash or a tilde is a path.
_ID = re.compile(r"[A-Za-z0-9][\w-]*(\.[\w-]+)*/[A-Za-z0-9][\w-]*(\.[\w-]+)*", re.ASCII)
PATTERNS = (
    "*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer*", "vocab.json",
    "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template*",
)  # fmt: skip
_GB = 1e9


def hub_id(name: str) -> str | None:
    """Return ``name`` if it can be a model's id on the hub, such as "Qwen/Qwen3-0.6B"."""
    return name if _ID.fullmatch(name) else None


def cached(model: str) -> Path | None:
    """Return the directory of a model in the local cache, or None when its weights are not there; asks no network."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        return None
    try:
        found = Path(snapshot_download(model, local_files_only=True, allow_patterns=[*PATTERNS]))
    except LocalEntryNotFoundError:
        return None
    return found if _whole(found) else None


def downloaded(model: str) -> Path:
    """Return the directory of a model's weights: out of the local cache, else fetched into it.

    Raises EngineError, which says what to do, when the hub cannot be reached or has no such weights.
    """
    if found := cached(model):
        return found
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise EngineError(
            f'{model} cannot be fetched without huggingface_hub: run  pip install "burnish[train]", or set '
            "train.base to a directory"
        ) from error
    allowed = [*PATTERNS]
    try:
        files = snapshot_download(model, allow_patterns=allowed, dry_run=True)
        size = sum(file.file_size or 0 for file in files if file.will_download)
        logger.warning("downloading %s from the Hugging Face hub, %.1f GB", model, size / _GB)
        found = Path(snapshot_download(model, allow_patterns=allowed))
    # Its errors are those of the HTTP client that a release happens to use; whichever it is, serving must go on.
    except Exception as error:
        raise EngineError(
            f"{model} is no file here, and cannot be had from the Hugging Face hub ({_first_line(error)}); check the "
            "name and the network (a gated model needs HF_TOKEN), or set train.base to a GGUF file or a directory on "
            "this machine"
        ) from error
    if not _whole(found):
        raise EngineError(f"{model} has no *.safetensors with a config.json: other formats can run code")
    return found


def _whole(path: Path) -> bool:
    """Whether a snapshot holds weights; an interrupted download leaves a shard out."""
    if not (path / "config.json").exists():
        return False
    index = path / "model.safetensors.index.json"
    if index.exists():
        shards = set(re.findall(r'"([^"]+\.safetensors)"', index.read_text(encoding="utf-8")))
        return bool(shards) and all((path / shard).exists() for shard in shards)
    return any(path.glob("*.safetensors"))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
