"""Compare the weights to train on with the weights that an engine serves: they must be the same model.

They need not be the same file: an engine may serve a quantised GGUF while training runs on the full weights in Hugging
Face's layout. But an adapter of another model is noise at best, so their shapes are compared.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from burnish.adapters.convert.gguf_layout import demanded, open_gguf
from burnish.adapters.errors import EngineError, IncompatibleAdapter

# GGUF's name of an architecture → the model types of transformers that are converted to it under another name.
_ALSO = {"llama": {"mistral", "mixtral"}, "command-r": {"cohere"}}


@dataclass(frozen=True, slots=True)
class BaseShape:
    """The properties by which two base models differ, without their weights."""

    architecture: str
    """In the file's words: GGUF's ``general.architecture``, or transformers' ``model_type``."""
    hidden_size: int
    layers: int
    vocabulary: int
    """Rows of the embedding."""


def demand_same_model(engine_weights: Path, base: Path) -> None:
    """Raise IncompatibleAdapter, which names each difference; EngineError if one of the files can't be read."""
    if engine_weights.resolve() == base.resolve():
        return
    engine_shape, base_shape = shape(engine_weights), shape(base)
    served_sizes = asdict(engine_shape)
    different = [
        f"{name.replace('_', ' ')} {size} instead of {served_sizes[name]}"
        for name, size in asdict(base_shape).items()
        if size != served_sizes[name] and not (name == "architecture" and _same(size, served_sizes[name]))
    ]
    if different:
        raise IncompatibleAdapter(
            f"train.base {base} is another model than the engine serves ({engine_weights}): {', '.join(different)}; "
            "set it to weights of the model that the engine serves"
        )


def shape(weights: Path) -> BaseShape:
    """Read the shape of a GGUF file or of a Hugging Face directory. Raises EngineError."""
    return _of_directory(weights) if weights.is_dir() else _of_gguf(weights)


def _of_directory(path: Path) -> BaseShape:
    try:
        config = json.loads((path / "config.json").read_bytes())
        sizes = config | config.get("text_config", {})  # models that also see
        return BaseShape(
            str(sizes["model_type"]),
            int(sizes["hidden_size"]),
            int(sizes["num_hidden_layers"]),
            int(sizes["vocab_size"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{path / 'config.json'} does not describe a language model: {error!r}") from error


def _of_gguf(path: Path) -> BaseShape:
    try:
        reader = open_gguf(path)
        architecture = str(demanded(reader, "general.architecture"))
        rows = [int(tensor.shape[1]) for tensor in reader.tensors if tensor.name == "token_embd.weight"]
        if not rows:
            raise ValueError("it has no token_embd.weight")
        return BaseShape(
            architecture,
            int(demanded(reader, f"{architecture}.embedding_length")),
            int(demanded(reader, f"{architecture}.block_count")),
            rows[0],
        )
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot read the model {path} as GGUF: {error}") from error


def _same(first: str, second: str) -> bool:
    return _plain(first) == _plain(second) or second in _ALSO.get(first, ()) or first in _ALSO.get(second, ())


def _plain(architecture: str) -> str:
    """qwen3_moe and qwen3moe, gemma3_text and gemma3 are the same."""
    return re.sub(r"[^a-z0-9]", "", architecture.lower()).removesuffix("text")
