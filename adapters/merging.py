"""Merged weights of a version: base and adapter in one model, for engines that take no adapters.

The merge runs in a child process, because it needs numpy and gguf, which the serving process doesn't load.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from burnish.adapters import errors
from burnish.adapters.errors import EngineError
from burnish.adapters.manifest import AdapterVersion
from burnish.system.child import Child, ChildError
from burnish.system.parent import for_child


@dataclass(frozen=True, slots=True)
class Merged:
    """How well a merged file keeps the adapter."""

    kept: float
    """<Ŵ−W, δ> / <δ, δ> over all changed tensors: W of the base, δ of the adapter, Ŵ in the file. 1: all, 0: none."""
    noise: float
    """|Ŵ−W−δ| / |δ|: rounding, in units of the change."""
    size_bytes: int
    """Size of the weights."""
    precision: str
    """Type of the tensors that are stored in another type than in the base: "q8_0", "f16", "f32"; "" if none are."""


async def ensure_merged(version: AdapterVersion, base: Path, target: Path) -> Merged | None:
    """Merge a version into its base as ``target``, unless that exists; then return None.

    A GGUF gives a GGUF, a Hugging Face directory gives a directory; it appears whole or not at all. Raises
    CorruptAdapter, IncompatibleAdapter (for another base; rounding would lose the adapter), EngineError (too little
    disk or memory, no permission, the child died).
    """
    if await asyncio.to_thread(target.exists):
        return None
    child = await Child.start((sys.executable, "-m", "burnish.adapters.merge_child"), env=for_child())
    try:
        answer = await child.ask([str(path.absolute()) for path in (version.path, base, target)])
    except ChildError as error:
        raise EngineError(f"merging {version.served_name} into {base.name} {error}") from error
    finally:
        await child.end()
        # A child that was killed leaves its half.
        target.with_name(f".{target.name}.{child.pid}.tmp").unlink(missing_ok=True)
        shutil.rmtree(target.with_name(f".{target.name}.{child.pid}.partial"), ignore_errors=True)
    if "error" in answer:
        raise getattr(errors, answer["error"])(f"{version.served_name} can't be merged: {answer['message']}")
    return Merged(**answer)
