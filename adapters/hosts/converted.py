"""Versions converted to GGUF for llama.cpp and Ollama: where they are kept, and how they are made."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import read_base
from burnish.adapters.convert.room import writing
from burnish.adapters.errors import IncompatibleAdapter
from burnish.adapters.manifest import AdapterVersion
from burnish.system.threads import in_one_thread


def open_state(state_dir: Path) -> None:
    """Make the directory of converted adapters (0700), and remove the files of killed conversions."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir.chmod(0o700)
    for scrap in state_dir.glob(".*.tmp"):
        scrap.unlink(missing_ok=True)


def converted_path(state_dir: Path, version: AdapterVersion, base_digest: str) -> Path:
    """Return the path for the GGUF of a version. Its name has a digest: an outdated file must never be served."""
    content = repr(sorted(version.manifest.checksums.items())) + base_digest
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    return state_dir.absolute() / f"v{version.number:04d}-{key}.gguf"


def forget_converted(state_dir: Path, version: AdapterVersion) -> None:
    """Delete every conversion of a version, and the log of its own engine if it had one."""
    for pattern in (f"v{version.number:04d}-*", f"engine-v{version.number:04d}.log"):
        for path in state_dir.absolute().glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def check_base(version: AdapterVersion, base_digest: str, model: str) -> None:
    """Raise IncompatibleAdapter if a version was trained on other weights than the engine serves."""
    if version.manifest.base_digest != base_digest:
        raise IncompatibleAdapter(
            f"{version.served_name} was trained on base weights {version.manifest.base_digest}, this "
            f"engine serves {model} with {base_digest}; serve the model that it was trained on, or train again"
        )


async def ensure_converted(version: AdapterVersion, base: Path, target: Path) -> None:
    """Convert a version if need be, off the event loop. Raises as convert_once does."""
    await in_one_thread(convert_once, version.path, base, target, version.served_name)


def convert_once(adapter: Path, base: Path, target: Path, name: str) -> None:
    """Convert a PEFT directory for a base GGUF, unless ``target`` exists; ``name`` is its name in errors.

    Raises CorruptAdapter, IncompatibleAdapter, EngineError (e.g. the disk is full; nothing is left then).
    """
    if target.exists():
        return
    with writing(f"{name} as GGUF into {target.parent}"):
        to_gguf(adapter, read_base(base), target)
