"""The GGUF that the setting ``model`` means for llama.cpp, whoever keeps it on this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from burnish.adapters import catalogue
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts import ollama_store
from burnish.adapters.hosts.fetch import SMALL_MODEL, ensure_small_model
from burnish.adapters.hosts.hub_cache import HubModel, cached, read_name
from burnish.config.model_names import OLLAMA
from burnish.system.regular import check_regular

SUFFIX = ".gguf"
MAGIC = b"GGUF"
"""The first bytes of such a file."""
MOST_BYTES = 2**62
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


class ModelFile(NamedTuple):
    """A model that the embedded engine can serve."""

    path: Path
    name: str
    """The name under which clients know it."""
    left_out: Sequence[str] = ()
    """What the model has beside the file, and the embedded engine can't use, in words."""


def model_file(name: str | None) -> ModelFile:
    """Find the GGUF of a model, of the hub only in its cache; None: the small model. Raises EngineError."""
    if name is None or name == SMALL_MODEL:
        return ModelFile(ensure_small_model(), SMALL_MODEL)
    if name.startswith(OLLAMA):
        tag = name.removeprefix(OLLAMA)
        ollama_model = ollama_store.stored(tag)
        return ModelFile(ollama_model.gguf, tag.removesuffix(":latest"), ollama_model.left_out)
    if model := hub_model(name):
        if file := cached(model):
            listed = catalogue.find(name)
            return ModelFile(file, listed.name if listed else plain_name(file.stem))
        raise EngineError(f"{name} isn't downloaded yet: `burnish up --model {name}` does it")
    path = Path(name).expanduser().absolute()
    _check_gguf(path, name)
    return ModelFile(path, plain_name(path.stem))


def hub_model(name: str) -> HubModel | None:
    """Return what a name means on the Hugging Face hub; None if it means the small model, Ollama's, or a file."""
    if name == SMALL_MODEL or name.startswith(OLLAMA) or Path(name).expanduser().is_file():
        return None
    if listed := catalogue.find(name):
        return HubModel(listed.repo, listed.file)
    return read_name(name)


def is_for_embedded(name: str) -> bool:
    """Return whether a model's name can only mean a file for the embedded engine, not a model of an upstream."""
    return name.startswith(OLLAMA) or name.endswith(SUFFIX)


def is_gguf(path: Path) -> bool:
    """Look into the file, since Ollama's files have no suffix."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def plain_name(name: str) -> str:
    """Return a name for a model that needs no quotes anywhere."""
    return _NOT_IN_NAMES.sub("-", name.lower())


def _check_gguf(path: Path, name: str) -> None:
    if not path.exists() and "/" not in name and not name.endswith(SUFFIX):
        nearest = catalogue.nearest(name)
        suggestion = f"did you mean {' or '.join(nearest)}? " if nearest else ""
        raise EngineError(
            f"no model is called {name!r}: {suggestion}`burnish models` lists some; or name a GGUF file, OWNER/NAME on "
            "the Hugging Face hub, or ollama:NAME"
        )
    try:
        check_regular(path, MOST_BYTES)
        path.open("rb").close()
    except OSError as error:
        raise EngineError(
            f"the model {path} can't be read: {error.strerror}; name a GGUF file, or a model of Ollama as ollama:NAME, "
            "or leave model unset for the small model"
        ) from error
    if not is_gguf(path):
        raise EngineError(
            f"{path} isn't a GGUF file, and llama.cpp takes no other: name one that is, or start an engine "
            "that has the model and name it with --upstream"
        )
