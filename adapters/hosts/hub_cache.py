"""Models of the Hugging Face hub: how users name them, and which GGUF in the hub's cache on this machine is meant.

Imports no HTTP client, because every command reads the setting ``model``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from burnish.adapters.hosts.hub import hub_id

PREFERRED = ("Q4_K_M", "Q8_0")
"""Taken in this order if no quantisation is named; without either, the first file by name."""
_QUANTISATION = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|FP?16|F32))(?:-\d{5}-of-\d{5})?\.gguf$",
    re.IGNORECASE,
)
SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model as users name it: OWNER/NAME, or OWNER/NAME:QUANTISATION."""

    repo: str
    tag: str | None
    """A quantisation, or the name of a file."""

    def __str__(self) -> str:
        return f"{self.repo}:{self.tag}" if self.tag else self.repo


def read_name(text: str) -> HubModel | None:
    """Return the model on the hub that a text names; None if it names something else, such as a file."""
    repo, _, tag = text.partition(":")
    if repo.lower().endswith(".gguf") or not hub_id(repo):
        return None
    return HubModel(repo, tag or None)


def cached(model: HubModel) -> Path | None:
    """Return the model's file in the local cache; uses no network."""
    folder = folder_of(model.repo)
    try:
        latest = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        latest = ""
    snapshots = sorted((folder / "snapshots").glob("*"), key=lambda path: (path.name != latest, path.name))
    for snapshot in snapshots:
        files = [str(path.relative_to(snapshot)) for path in snapshot.rglob("*.gguf") if path.is_file()]
        if file := best(files, model.tag):
            return snapshot / file
    return None


def quantisation(path: str) -> str:
    """Return the quantisation in a GGUF's name, in upper case; without one, the name."""
    match = _QUANTISATION.search(path)
    return match[1].upper() if match else PurePosixPath(path).name


def best(paths: Iterable[str], tag: str | None) -> str | None:
    """Return the file that is wanted; without a wish, the preferred quantisation."""
    whole = sorted(path for path in paths if not (SPLIT.search(path) or is_companion(path)))
    if tag:
        names = (tag.upper(), tag.upper().removesuffix(".GGUF"))
        return next(
            (path for path in whole if {quantisation(path), PurePosixPath(path).stem.upper()} & {*names}),
            None,
        )
    for kind in PREFERRED:
        if matches := [path for path in whole if quantisation(path) == kind]:
            return matches[0]
    return whole[0] if whole else None


def cache() -> Path:
    """Return the cache's directory, as the hub's own programs find it."""
    environment = os.environ
    if own := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(own).expanduser()
    return home() / "hub"


def home() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("HF_HOME") or Path(caches) / "huggingface").expanduser()


def folder_of(repo: str) -> Path:
    return cache() / f"models--{repo.replace('/', '--')}"


def is_companion(path: str) -> bool:
    """Whether a GGUF is only for another one: the part that sees, or the statistics behind a quantisation."""
    name = PurePosixPath(path).name.lower()
    return name.startswith(("mmproj", "imatrix")) or "imatrix.gguf" in name
