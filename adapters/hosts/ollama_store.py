"""Finds the GGUF of a model in Ollama's own store, and changes nothing there.

From Ollama's sources (manifest/paths.go, manifest/manifest.go, types/model/name.go, envconfig/config.go): ``NAME`` is
``[HOST/[NAMESPACE/]]MODEL[:TAG]``; its manifest is the file ``manifests/HOST/NAMESPACE/MODEL/TAG``, which lists layers;
the bytes of a layer are in ``blobs/sha256-HEX``. A download is called ``…-partial`` until it is whole.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from burnish.adapters.errors import EngineError

STORE = "OLLAMA_MODELS"
"""Environment variable with which users move the store."""
_DEFAULTS = ("registry.ollama.ai", "library")
"""Host and namespace of a name that has none."""
_LATEST = "latest"
_PART = re.compile(r"\w[\w.-]{0,79}", re.ASCII)
_HOST = re.compile(r"\w[\w.:-]{0,349}", re.ASCII)
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})", re.ASCII)
_LAYER = "application/vnd.ollama.image."
# Layers that Ollama applies to each request.
_NOT_APPLIED = {
    "system": "system prompt",
    "messages": "messages",
    "params": "parameters",
    "projector": "part for images",
}
_MOST_NAMES = 8


class Layer(NamedTuple):
    """One layer of a model."""

    kind: str
    """The last part of Ollama's media type, such as "model", "params" or "adapter"."""
    digest: str
    size: int
    """In bytes."""


class StoredModel(NamedTuple):
    """A model in the store."""

    gguf: Path
    left_out: Sequence[str]
    """What Ollama adds to the model, and only Ollama can apply, in words."""


def stored(name: str) -> StoredModel:
    """Find a model of Ollama, such as "qwen3:0.6b". Raises EngineError, which says what to do."""
    place = _place(name)
    for store in stores():
        manifest = store / "manifests" / place
        try:
            layers = _layers(manifest.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            raise _closed(manifest) from error
        except (OSError, ValueError) as error:
            raise EngineError(
                f"Ollama's manifest {manifest} is damaged ({error}); download the model again: ollama pull {name}"
            ) from error
        left_out = [
            words for kind, words in _NOT_APPLIED.items() if any(kind == layer.kind for layer in layers)
        ]
        return StoredModel(_gguf(name, layers, store), left_out)
    raise EngineError(_missing(name))


def stores() -> Sequence[Path]:
    """Return the folders that can be Ollama's store: of this user, and of the service on Linux."""
    if folder := os.environ.get(STORE):
        return (Path(folder),)
    return (Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models"))


def names() -> list[str]:
    """Return the models in the stores that can be read, in Ollama's words."""
    short_names = {
        _short(manifest.relative_to(store / "manifests").parts)
        for store in stores()
        for manifest in (store / "manifests").glob("*/*/*/*")
    }
    return sorted(name for name in short_names if "-burnish:" not in name)


def _place(name: str) -> Path:
    """Return where the manifest of a model is within the folder of manifests. Raises EngineError."""
    path, tag = name, _LATEST
    if name.rfind(":") > name.rfind("/"):
        path, _, tag = name.rpartition(":")
    *prefix, model = path.split("/")
    host, namespace = (*_DEFAULTS[: 2 - len(prefix)], *prefix)[:2]
    parts = (namespace, model, tag)
    if len(prefix) > len(_DEFAULTS) or not (_HOST.fullmatch(host) and all(map(_PART.fullmatch, parts))):
        raise EngineError(
            f"{name!r} isn't the name of a model of Ollama; expected one like qwen3:0.6b (`ollama list`)"
        )
    return Path(host, *parts)


def _short(parts: Sequence[str]) -> str:
    host, namespace, model, tag = parts
    prefix = [host, namespace] if host != _DEFAULTS[0] else [namespace] if namespace != _DEFAULTS[1] else []
    return "/".join([*prefix, model]) + ("" if tag == _LATEST else f":{tag}")


def _layers(manifest: bytes) -> list[Layer]:
    """Raises ValueError."""
    try:
        return [
            Layer(str(layer["mediaType"]).removeprefix(_LAYER), str(layer["digest"]), int(layer["size"]))
            for layer in json.loads(manifest)["layers"]
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"it has no valid list of layers: {error!r}") from error


def _gguf(name: str, layers: Sequence[Layer], store: Path) -> Path:
    """Return the file of the one model layer. Raises EngineError if the embedded engine can't serve the model."""
    if any(layer.kind == "adapter" for layer in layers):
        raise EngineError(
            f"ollama:{name} is a base model with an adapter, and burnish would serve it without: name its base"
        )
    models = [layer for layer in layers if layer.kind == "model"]
    if not models:
        raise EngineError(
            f"ollama:{name} has no GGUF: it runs in Ollama's cloud, or isn't stored as GGUF; name another model"
        )
    if len(models) > 1:
        raise EngineError(
            f"ollama:{name} is split into {len(models)} files, and burnish serves one: name a GGUF file of your own"
        )
    path = _whole(name, models[0], store)
    _check(name, path)
    return path


def _whole(name: str, layer: Layer, store: Path) -> Path:
    digest = _DIGEST.fullmatch(layer.digest)
    if digest is None:
        raise EngineError(
            f"Ollama's manifest of {name} is damaged: {layer.digest!r} isn't a digest; run: ollama pull {name}"
        )
    path = store / "blobs" / f"sha256-{digest[1].lower()}"
    try:
        size = path.stat().st_size
    except PermissionError as error:
        raise _closed(path) from error
    except OSError as error:
        raise EngineError(
            f"ollama:{name} isn't downloaded completely: {path} is missing; run: ollama pull {name}"
        ) from error
    if size != layer.size:
        raise EngineError(
            f"ollama:{name} isn't downloaded completely: {path} has {size:,} of {layer.size:,} bytes; "
            f"run: ollama rm {name} && ollama pull {name}"
        )
    return path


def _check(name: str, path: Path) -> None:
    """Look into the file. Raises EngineError if the embedded engine and the trainer can't use it."""
    # Imported here: numpy takes a while, and most commands read no GGUF.
    from burnish.adapters.convert.gguf_layout import field, open_gguf

    try:
        reader = open_gguf(path)
    except PermissionError as error:
        raise _closed(path) from error
    except (OSError, ValueError) as error:
        raise EngineError(
            f"ollama:{name} isn't a GGUF that burnish can read ({path}: {error}); name another model"
        ) from error
    if int(field(reader, "split.count") or 0) > 1:
        raise EngineError(
            f"ollama:{name} is one part of a split GGUF, and burnish serves one file: name a GGUF file of your own"
        )
    if not field(reader, "tokenizer.chat_template"):
        raise EngineError(
            f"ollama:{name} has no chat template in its GGUF, only Ollama's own, which llama.cpp can't read: name "
            "another GGUF of this model, or leave it to Ollama: burnish up --upstream http://127.0.0.1:11434"
        )


def _closed(path: Path) -> EngineError:
    """Return the error for a file that this user may not read; it names the folder that is closed."""
    folder = next((parent for parent in reversed(path.parents) if not os.access(parent, os.X_OK)), None)
    what, mode = (folder, "a+rx") if folder else (path, "a+r")
    return EngineError(
        f"Ollama's store is closed to you at {what}; open it for reading: sudo chmod {mode} {what}"
    )


def _missing(name: str) -> str:
    models = names()
    if not models:
        places = " or ".join(map(str, stores()))
        return (
            f"Ollama has no models here, neither {name} nor others, in {places}; run: ollama pull {name}, or set "
            f"{STORE} to Ollama's folder"
        )
    remainder = f" and {len(models) - _MOST_NAMES} more" if len(models) > _MOST_NAMES else ""
    listing = ", ".join(models[:_MOST_NAMES]) + remainder
    return f"Ollama has no model {name!r} here; it has {listing}. To get it: ollama pull {name}"
