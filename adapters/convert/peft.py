"""A LoRA in PEFT layout: a directory with adapter_config.json and adapter_model.safetensors.

Every converter goes through ``PeftAdapter``. Reads and writes plain LoRA only; anything else is refused with the
reason, and no tensor is ever left out silently. Needs no torch.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from burnish.adapters.errors import CorruptAdapter, IncompatibleAdapter
from burnish.adapters.weights_file import CONFIG, WEIGHTS, widened
from burnish.system import durable

Array = NDArray[np.float32]

_PREFIX = "base_model.model."
_TENSOR = re.compile(rf"{re.escape(_PREFIX)}(?P<module>[\w.]{{1,255}})\.lora_(?P<half>A|B)\.weight")
_EMBEDDING = re.compile(r".*\.lora_embedding_[AB]")
# Of rank_pattern and alpha_pattern. Nested groups and many stars can be written so that matching them takes for ever.
_NAME, _CHOICE = r"[\w.*^$\\-]*", r"\((?:\?:)?[\w.\\-]+(?:\|[\w.\\-]+){0,7}\)(?!\*)"
_NAMES = re.compile(rf"{_NAME}(?:{_CHOICE}{_NAME})?")
_MAX_STARS = 2
_MATRIX = 2
# A model that also sees (Gemma3ForConditionalGeneration, …) has its text part in a language_model, as checkpoints,
# engines and mlx-lm call it.
_TEXT_PART = re.compile(r"(?:model\.)?language_model\.(?:model\.)?|model\.")
IN_TEXT_PART = "language_model."

# Each changes the meaning of the weights, and no other format can express it.
_UNSUPPORTED = (
    "use_dora", "modules_to_save", "lora_bias", "layer_replication", "trainable_token_indices",
    "target_parameters", "fan_in_fan_out", "alora_invocation_tokens", "use_qalora", "use_bdlora", "arrow_config",
    "kasa_config", "monteclora_config",
)  # fmt: skip
# Initialisations that leave the base as it is; the others ("pissa", "olora", …) also change its weights.
_KEEPS_BASE = (True, False, None, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True, slots=True)
class Lora:
    """The pair of one module: the weight's change is alpha / rank · b @ a."""

    a: Array
    """(r, in)"""
    b: Array
    """(out, r)"""

    @property
    def rank(self) -> int:
        """Rows of a, columns of b."""
        return int(self.a.shape[0])


@dataclass(frozen=True, slots=True)
class PeftAdapter:
    """A plain LoRA, read and checked."""

    alpha: float
    """A module's change is scaled by alpha / its rank. rsLoRA's own rule and alpha_pattern are already applied."""
    pairs: Mapping[str, Lora]
    """Module name in the Hugging Face model, e.g. "model.layers.0.self_attn.q_proj" → its pair. Not empty."""

    def scaled(self, lora: Lora) -> Lora:
        """Return one of the pairs with its scale in b: the weight's change is then b @ a."""
        return Lora(lora.a, lora.b * np.float32(self.alpha / lora.rank))

    @property
    def rank(self) -> int:
        """The highest rank of its modules."""
        return max(lora.rank for lora in self.pairs.values())

    def of_one_rank(self) -> PeftAdapter:
        """Return the same changes, all of the highest rank, because MLX has one scale, and vLLM reads only one.

        Zeros fill up the smaller pairs, and what the scale loses goes into b.
        """
        pairs = {}
        for module, lora in self.pairs.items():
            more = self.rank - lora.rank
            b = lora.b * np.float32(self.rank / lora.rank)
            pairs[module] = Lora(np.pad(lora.a, ((0, more), (0, 0))), np.pad(b, ((0, 0), (0, more))))
        return PeftAdapter(self.alpha, pairs)


def read_peft(path: Path) -> PeftAdapter:
    """Read and check a PEFT directory.

    Raises CorruptAdapter (missing, cut, NaN, other ranks than in the configuration), IncompatibleAdapter
    (not plain LoRA: DoRA, trained embeddings, biases, …).
    """
    config = _read_config(path / CONFIG)
    pairs = paired(
        path,
        _halves(read_tensors(path / WEIGHTS)),
        lambda module: int(_of_module(module, config, "rank_pattern", "r")),
    )
    alphas = {module: float(_of_module(module, config, "alpha_pattern", "lora_alpha")) for module in pairs}
    if config.get("use_rslora"):
        # rsLoRA scales by alpha/sqrt(r), everything else by alpha/r (Kalajdzievski, arXiv 2312.03732).
        alphas = {module: alpha * math.sqrt(pairs[module].rank) for module, alpha in alphas.items()}
    alpha = Counter(alpha for alpha in alphas.values() if alpha).most_common(1)
    return _with_one_alpha(path, alpha[0][0] if alpha else 0.0, alphas, pairs)


def _with_one_alpha(
    path: Path, alpha: float, alphas: Mapping[str, float], pairs: Mapping[str, Lora]
) -> PeftAdapter:
    """Fold into b by how much a module's alpha differs. Raises CorruptAdapter if it becomes infinite."""
    folded = dict(pairs)
    for module, own in alphas.items():
        if own != alpha:
            with np.errstate(over="ignore", invalid="ignore"):
                folded[module] = Lora(pairs[module].a, pairs[module].b * np.float32(own / alpha))
            check_finite(path, module, folded[module].b)
    return PeftAdapter(alpha, folded)


def in_text_part(module: str) -> str:
    """Return a module's name within the text part of its model, such as "layers.0.self_attn.q_proj"."""
    text_part = _TEXT_PART.match(module)
    return module[text_part.end() :] if text_part else module


def names_in(modules: Iterable[str], others: Collection[str]) -> dict[str, str]:
    """Return by which of other names, those of a checkpoint or of a loaded model, the same modules go there.

    A …ForCausalLM that is made of a checkpoint of a …ForConditionalGeneration has other names. Raises
    IncompatibleAdapter if a model that also sees has no such module.
    """
    by_text = {in_text_part(name): name for name in others}
    sees = any(IN_TEXT_PART in name for name in others)
    names = {module: module if module in others else by_text.get(in_text_part(module)) for module in modules}
    if sees and (unknown := [module for module, name in names.items() if name is None]):
        raise IncompatibleAdapter(f"the base has no weight for {', '.join(unknown[:3])}")
    return {module: name or module for module, name in names.items()}


def renamed(adapter: PeftAdapter, others: Collection[str]) -> PeftAdapter:
    """Return an adapter by the names that ``names_in`` finds. Raises IncompatibleAdapter."""
    names = names_in(adapter.pairs, others)
    return PeftAdapter(adapter.alpha, {names[module]: lora for module, lora in adapter.pairs.items()})


def write_peft(adapter: PeftAdapter, target: Path, base_model: str) -> None:
    """Write an adapter as a new PEFT directory, atomically, readable by its owner only.

    ``base_model`` is the base's name in the configuration. Raises FileExistsError if ``target`` exists, OSError if it
    can't be written; nothing is left then.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists; name a new directory")
    tensors = {}
    for module, lora in adapter.pairs.items():
        tensors[f"{_PREFIX}{module}.lora_A.weight"] = np.ascontiguousarray(lora.a)
        tensors[f"{_PREFIX}{module}.lora_B.weight"] = np.ascontiguousarray(lora.b)
    text = json.dumps(_config(adapter, base_model), indent=2)
    durable.create_directory(target, {WEIGHTS: save(tensors, {"format": "pt"}), CONFIG: text.encode()})


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        ranks = [int(own) for own in (config.get("rank_pattern") or {}).values()]
        alphas = [alpha, *map(float, (config.get("alpha_pattern") or {}).values())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptAdapter(f"{path} is missing or damaged: {type(error).__name__}: {error}") from error
    if min([rank, *ranks]) < 1 or not all(map(math.isfinite, alphas)):
        raise CorruptAdapter(f"{path} has r={rank}, lora_alpha={alpha}; expected r >= 1 and a finite alpha")
    if config.get("peft_type") != "LORA":
        raise IncompatibleAdapter(f"{path} has peft_type {config.get('peft_type')!r}; expected 'LORA'")
    used = [name for name in _UNSUPPORTED if config.get(name)]
    if config.get("bias", "none") != "none":
        used.append("bias")
    if config.get("init_lora_weights") not in _KEEPS_BASE:
        used.append(f"init_lora_weights={config['init_lora_weights']!r} (which also changes the base)")
    if used:
        raise IncompatibleAdapter(
            f"{path} uses {', '.join(used)}, which other formats can't express; train a plain LoRA"
        )
    return dict(config)


def read_tensors(path: Path) -> dict[str, Array]:
    """Read all tensors of a safetensors file as float32. Raises CorruptAdapter, IncompatibleAdapter (other types)."""
    try:
        raw_tensors = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except (OSError, SafetensorError) as error:
        raise CorruptAdapter(f"{path} is missing or damaged: {error}") from error
    tensors = {
        name: to_float32(name, tensor["dtype"], bytes(tensor["data"]), tensor["shape"])
        for name, tensor in raw_tensors
    }
    for name, array in tensors.items():
        check_finite(path, name, array)
    return tensors


def check_finite(path: Path, name: str, array: Array) -> None:
    """Raise CorruptAdapter when a tensor of a file holds NaN or infinite values."""
    if not np.isfinite(array).all():
        raise CorruptAdapter(f"{path}: {name} has NaN or infinite values, so the version must not be served")


def check_shape(module: str, lora: Lora, base: tuple[int, ...]) -> None:
    """Raise IncompatibleAdapter unless a pair fits the weight that it changes: (out, in), or only (out,)."""
    shape = (lora.b.shape[0], lora.a.shape[1])
    if shape[: len(base)] != base:
        raise IncompatibleAdapter(
            f"{module} changes a weight of shape {shape}, but the base has {base}; the adapter is for another model"
        )


def to_float32(name: str, kind: str, content: bytes, shape: Sequence[int]) -> Array:
    """Widen a tensor of a safetensors file to float32, exactly. Raises IncompatibleAdapter for other types."""
    if kind not in ("F32", "F16", "BF16"):
        raise IncompatibleAdapter(f"{name} is of type {kind}; expected F32, F16 or BF16")
    return widened(content, kind).astype(np.float32).reshape(shape)


def _halves(tensors: dict[str, Array]) -> dict[str, dict[str, Array]]:
    halves: dict[str, dict[str, Array]] = {}
    for name, array in tensors.items():
        match = _TENSOR.fullmatch(name)
        if match is None:
            kind = "is a trained embedding" if _EMBEDDING.fullmatch(name) else "isn't part of a plain LoRA"
            raise IncompatibleAdapter(f"tensor {name!r} {kind}; leaving it out would change replies")
        halves.setdefault(match["module"], {})[match["half"].lower()] = array
    return halves


def paired(
    path: Path, halves: Mapping[str, Mapping[str, Array]], rank_of: Callable[[str], int | None]
) -> dict[str, Lora]:
    """Return the pair of each module, sorted by name: the same adapter must give the same bytes.

    ``halves``: module → {"a": (r, in), "b": (out, r)}; ``rank_of`` returns the rank in the configuration, or None.
    Raises CorruptAdapter.
    """
    if not halves:
        raise CorruptAdapter(f"{path} has no tensors")
    pairs = {}
    for module in sorted(halves):
        pair, rank = halves[module], rank_of(module)
        if pair.keys() != {"a", "b"}:
            raise CorruptAdapter(
                f"{path}: {module} has only lora_{''.join(pair)}; expected both halves, lora_a and lora_b"
            )
        a, b = pair["a"], pair["b"]
        if not a.ndim == b.ndim == _MATRIX or not a.shape[0] == b.shape[1] == (rank or a.shape[0]):
            expected = f"rank {rank} in both" if rank else "one rank in both"
            raise CorruptAdapter(
                f"{path}: {module} has lora_a {a.shape} and lora_b {b.shape}; expected {expected}"
            )
        pairs[module] = Lora(a, b)
    return pairs


def _of_module(module: str, config: dict[str, Any], patterns: str, otherwise: str) -> Any:
    """Return a module's number in the configuration; the first pattern that fits wins, as in PEFT."""
    for pattern, number in (config.get(patterns) or {}).items():
        if not _NAMES.fullmatch(pattern) or pattern.count("*") > _MAX_STARS:
            raise IncompatibleAdapter(
                f"{patterns} {pattern[:200]!r} isn't the name of a module; at most {_MAX_STARS} .* may stand in it, "
                "and one choice among 8 names, (q_proj|k_proj)"
            )
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return number
        except re.error as error:
            raise CorruptAdapter(f"{patterns} {pattern!r} isn't a regular expression: {error}") from error
    return config[otherwise]


def _config(adapter: PeftAdapter, base_model: str) -> dict[str, Any]:
    ranks = [lora.rank for lora in adapter.pairs.values()]
    most = max(set(ranks), key=lambda rank: (ranks.count(rank), rank))
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": most,
        "lora_alpha": int(adapter.alpha) if adapter.alpha.is_integer() else adapter.alpha,
        "rank_pattern": {re.escape(m): lora.rank for m, lora in adapter.pairs.items() if lora.rank != most},
        "target_modules": list(adapter.pairs),  # in full: a short name would also target other layers
        "lora_dropout": 0.0,
        "bias": "none",
        "use_rslora": False,
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
