"""A LoRA in PEFT layout ↔ an adapter of mlx-lm: a directory with adapter_config.json and adapters.safetensors.

mlx-lm keeps both factors transposed, under the model's own names of its modules, with one rank and one scale for all
of them (its LORA.md, and load_adapters in tuner/utils.py). Values stay the same to the bit. Whatever one side can't
express is refused, and no tensor is ever left out silently. Needs neither mlx nor torch.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from burnish.adapters.convert.peft import (
    IN_TEXT_PART,
    Array,
    PeftAdapter,
    check_shape,
    in_text_part,
    paired,
    read_peft,
    read_tensors,
    renamed,
)
from burnish.adapters.errors import CorruptAdapter, EngineError, IncompatibleAdapter
from burnish.system import durable

CONFIG = "adapter_config.json"
WEIGHTS = "adapters.safetensors"

_TENSOR = re.compile(r"(?P<module>[\w.]+)\.lora_(?P<half>[ab])")
_MATRIX = 2
BASE_CONFIG = "config.json"
# The files that mlx-lm loads.
BASE_WEIGHTS = "model*.safetensors"

# Of these, mlx-lm 0.32 reads rope_parameters itself.
_READS_ROPE_PARAMETERS = frozenset(
    {
        "exaone_moe", "glm_moe_dsa", "granitemoehybrid", "lfm2", "lfm2_moe", "ministral3", "mistral4", "qwen3",
        "qwen3_5", "qwen3_5_text",
    }
)  # fmt: skip
_WEIGHT, _SCALES = ".weight", ".scales"


@dataclass(frozen=True, slots=True)
class MlxBase:
    """A Hugging Face directory as MLX reads it."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    """Module → shape of its weight, (out, in) of a linear layer; (out,) where it is quantised."""
    misread: dict[str, Any]
    """Entries that ``config.json`` lacks at its top level, for which mlx-lm would silently use its own defaults."""


def read_base(path: Path) -> MlxBase:
    """Read the layout of a Hugging Face directory. Raises EngineError."""
    files = sorted(path.glob(BASE_WEIGHTS))
    if not files:
        raise EngineError(f"{path} has no {BASE_WEIGHTS}; expected a Hugging Face model directory")
    all_shapes: dict[str, tuple[int, ...]] = {}
    try:
        config = json.loads((path / BASE_CONFIG).read_bytes())
        for file in files:
            with safe_open(file, "numpy") as tensors:
                all_shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        misread = rope_misread(config)
    except (OSError, ValueError, AttributeError, SafetensorError) as error:
        raise EngineError(f"cannot read the model in {path}: {error}") from error
    shapes = {
        name.removesuffix(_WEIGHT): shape for name, shape in all_shapes.items() if name.endswith(_WEIGHT)
    }
    # Quantised weights are packed, several to a number.
    quantised = {name.removesuffix(_SCALES) for name in all_shapes if name.endswith(_SCALES)}
    shapes |= {module: shapes[module][:1] for module in quantised & shapes.keys()}
    return MlxBase(path, shapes, misread)


def rope_misread(config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries that must be added to a model's configuration, or mlx-lm encodes positions wrongly.

    transformers 5 writes rope_theta and rope_scaling into rope_parameters only. For most architectures mlx-lm doesn't
    look there: it uses its own default, and every answer is a little wrong.
    """
    parameters = config.get("rope_parameters")
    if not isinstance(parameters, dict) or config.get("model_type") in _READS_ROPE_PARAMETERS:
        return {}
    missing: dict[str, Any] = {}
    if "rope_theta" in parameters and config.get("rope_theta") is None:
        missing["rope_theta"] = parameters["rope_theta"]
    if parameters.get("rope_type", "default") != "default" and not config.get("rope_scaling"):
        missing["rope_scaling"] = {
            name: setting for name, setting in parameters.items() if name != "rope_theta"
        }
    return missing


def to_mlx(adapter: Path, base: MlxBase, target: Path) -> None:
    """Write the adapter of a PEFT directory as a new directory for mlx-lm, atomically, readable by its owner only.

    Raises CorruptAdapter (missing, cut, NaN), IncompatibleAdapter (not a plain LoRA, or for another base),
    OSError; nothing is left then.
    """
    peft = read_peft(adapter).of_one_rank()
    tensors: dict[str, Array] = {}
    keys: list[str] = []
    sees = any(IN_TEXT_PART in name for name in base.shapes)
    for module, lora in renamed(peft, base.shapes).pairs.items():
        if module not in base.shapes:
            raise IncompatibleAdapter(f"the base {base.path} has no weight for {module}")
        check_shape(module, lora, base.shapes[module])
        name = _of_text_part(module) if sees else module
        tensors[f"{name}.lora_a"] = np.ascontiguousarray(lora.a.T)  # (in, r)
        tensors[f"{name}.lora_b"] = np.ascontiguousarray(lora.b.T)  # (r, out)
        keys.append(name)
    config = {
        "fine_tune_type": "lora",
        "num_layers": 1,  # counts only for names within a layer; ours are whole ones
        "lora_parameters": {
            "rank": peft.rank,
            "scale": peft.alpha / peft.rank,
            "dropout": 0.0,
            "keys": keys,
        },
    }
    weights, text = save(tensors, {"format": "mlx"}), json.dumps(config, indent=1)
    durable.create_directory(target, {WEIGHTS: weights, CONFIG: text.encode()})


def _of_text_part(module: str) -> str:
    """Return a module's name in mlx-lm's classes of models that also see."""
    text = in_text_part(module)
    return f"{IN_TEXT_PART}{text}" if text == "lm_head" else f"{IN_TEXT_PART}model.{text}"


def from_mlx(path: Path) -> PeftAdapter:
    """Read an adapter of mlx-lm. Raises CorruptAdapter (cut, NaN), IncompatibleAdapter (DoRA, embeddings, experts)."""
    rank, scale = _read_config(path / CONFIG)
    halves: dict[str, dict[str, Array]] = {}
    for name, array in read_tensors(path / WEIGHTS).items():
        match = _TENSOR.fullmatch(name)
        # PEFT has another form for embeddings, and none for experts, whose factors have three dimensions.
        if match is None or "embed" in match["module"].rpartition(".")[2] or array.ndim != _MATRIX:
            raise IncompatibleAdapter(
                f"{path}: tensor {name!r} of shape {array.shape} isn't part of a LoRA on linear layers"
            )
        halves.setdefault(match["module"], {})[match["half"]] = array.T
    return PeftAdapter(_alpha(scale, rank), paired(path, halves, lambda _: rank))


def _read_config(path: Path) -> tuple[int, float]:
    try:
        config = json.loads(path.read_bytes())
        kind = config.get("fine_tune_type", "lora")
        parameters = config.get("lora_parameters") or {}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptAdapter(f"{path} is missing or damaged: {type(error).__name__}: {error}") from error
    if kind != "lora":
        raise IncompatibleAdapter(f"{path} has fine_tune_type {kind!r}; expected 'lora'")
    try:
        rank, scale = int(parameters["rank"]), float(parameters["scale"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptAdapter(f"{path} lacks rank or scale in lora_parameters: {error!r}") from error
    if rank < 1 or not math.isfinite(scale):
        raise CorruptAdapter(f"{path} has rank={rank}, scale={scale}; expected rank >= 1 and a finite scale")
    return rank, scale


def _alpha(scale: float, rank: int) -> float:
    """Return the alpha for which alpha / rank is the scale: a whole number if possible."""
    alpha = scale * rank
    whole = float(round(alpha))
    return whole if whole / rank == scale else alpha
