"""What MLX makes of a Hugging Face directory: the shapes of its weights, and what it misreads of the configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from burnish.adapters.errors import EngineError

CONFIG = "config.json"
# As mlx-lm looks for them.
WEIGHTS = "model*.safetensors"

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
    """A base model as MLX sees it."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    """Module → shape of its weight, (out, in) of a linear layer; (out,) where it is quantised."""
    misread: dict[str, Any]
    """What ``config.json`` lacks at its top, so that mlx-lm would silently take its own defaults instead; empty when
    all is well."""


def read_base(path: Path) -> MlxBase:
    """Read the layout of a Hugging Face directory. Raises EngineError."""
    files = sorted(path.glob(WEIGHTS))
    if not files:
        raise EngineError(f"{path} holds no {WEIGHTS}: name a Hugging Face model directory")
    found: dict[str, tuple[int, ...]] = {}
    try:
        config = json.loads((path / CONFIG).read_bytes())
        for file in files:
            with safe_open(file, "numpy") as tensors:
                found |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        misread = rope_misread(config)
    except (OSError, ValueError, AttributeError, SafetensorError) as error:
        raise EngineError(f"cannot read the model in {path}: {error}") from error
    shapes = {name.removesuffix(_WEIGHT): shape for name, shape in found.items() if name.endswith(_WEIGHT)}
    # Quantised weights are packed, several to a number.
    quantised = {name.removesuffix(_SCALES) for name in found if name.endswith(_SCALES)}
    shapes |= {module: shapes[module][:1] for module in quantised & shapes.keys()}
    return MlxBase(path, shapes, misread)


def rope_misread(config: dict[str, Any]) -> dict[str, Any]:
    """Return what must be added to a model's configuration for mlx-lm to read its positions right.

    transformers 5 writes rope_theta and rope_scaling into rope_parameters only, where mlx-lm does not look for most
    architectures: it then computes with a default of its own, and every answer is a little wrong.
    """
    parameters = config.get("rope_parameters")
    if not isinstance(parameters, dict) or config.get("model_type") in _READS_ROPE_PARAMETERS:
        return {}
    missing: dict[str, Any] = {}
    if "rope_theta" in parameters and config.get("rope_theta") is None:
        missing["rope_theta"] = parameters["rope_theta"]
    if parameters.get("rope_type", "default") != "default" and not config.get("rope_scaling"):
        missing["rope_scaling"] = {name: value for name, value in parameters.items() if name != "rope_theta"}
    return missing
