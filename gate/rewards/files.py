"""A reward model on the disk: ``reward.json`` and ``weights.npz`` in a directory of their own.

The record says what the model learnt from and how well each form ordered unseen ratings. Weights are plain arrays:
nothing in them can run. A model scores texts by itself, whatever the engine serves, so it names no base.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from burnish.adapters.errors import UnreadableRewardModel
from burnish.config.hyperparameters import FrozenRecord
from burnish.gate.rewards.features import Embedding, Form, Vector, Words
from burnish.gate.rewards.model import Ensemble, Order, Perceptrons, Ridges
from burnish.system import durable

FORMAT = 1
MANIFEST, WEIGHTS = "reward.json", "weights.npz"
MOST_BYTES = 512 * 1024 * 1024
"""A longer file of weights isn't one of ours."""

PERCEPTRONS = {"hidden": "MFH", "mean": "F", "scale": "F", "hidden_bias": "MH", "out": "MH", "out_bias": "M"}
SHAPES: Mapping[str, Mapping[str, str]] = {
    "form": {"coefficients": "MF", "constants": "M", "mean": "F", "scale": "F"},
    "words": {"coefficients": "MV", "constants": "M"},
    "embeddings": {**PERCEPTRONS, "table": "VD"},
}
"""Kind → array → its axes; those of one letter are equally long, V as long as the vocabulary."""
Arrays = Mapping[str, np.ndarray[Any, Any]]
Kind = Literal["form", "words", "embeddings"]


class Trial(FrozenRecord):
    """One form of reward model, and how it ordered ratings that it hadn't seen."""

    name: str
    share: float | None = None
    """Of (better, worse) pairs in the right order; None: it couldn't be tried."""
    error: float | None = None
    """Its standard error."""
    reason: str | None = None
    """Why it couldn't be tried."""

    @property
    def order(self) -> Order | None:
        return None if self.share is None or self.error is None else Order(self.share, self.error)


class LearntFrom(FrozenRecord):
    """The feedback behind a reward model."""

    good: int
    bad: int
    graded: int
    """Ratings between good and bad, on a scale."""
    pairs: int
    """Replies that were preferred over others, corrections included."""
    conversations: int
    left_out: dict[str, int] = Field(default_factory=dict)
    """Feedback that couldn't be used, by reason."""


class RewardManifest(FrozenRecord):
    """``reward.json``."""

    format: int = FORMAT
    kind: Kind
    """What the weights are."""
    chosen: str
    """Which of ``tried`` it is."""
    made_at: float
    """Seconds since the epoch, UTC."""
    objective: str
    """What the weights minimise, in words."""
    learnt_from: LearntFrom
    tried: tuple[Trial, ...]
    """All forms, the chosen one included."""
    weights_sha256: str
    weights_bytes: int

    @property
    def order(self) -> Order:
        """Of the form that scores."""
        order = next((trial.order for trial in self.tried if trial.name == self.chosen), None)
        return order or Order(0.5, 0.5)


def write_reward_model(path: Path, model: Ensemble, **of_manifest: Any) -> RewardManifest:
    """Write a new directory, all of it or nothing. Raises OSError.

    ``of_manifest``: the fields of the manifest, without kind and weights.
    """
    kind, arrays = _arrays(model)
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]  # its stub takes the names for options
    weights = packed.getvalue()
    manifest = RewardManifest(
        kind=kind,
        weights_sha256=hashlib.sha256(weights).hexdigest(),
        weights_bytes=len(weights),
        **of_manifest,
    )
    durable.create_directory(path, {WEIGHTS: weights, MANIFEST: manifest.model_dump_json(indent=1).encode()})
    return manifest


def read_reward_model(path: Path) -> tuple[RewardManifest, Ensemble]:
    """Raises UnreadableRewardModel, which says what is wrong and how to go on."""
    manifest = _manifest(path / MANIFEST)
    weights = _content(path / WEIGHTS)
    if len(weights) != manifest.weights_bytes:
        raise _unreadable(path, f"{WEIGHTS} has {len(weights)} bytes, not {manifest.weights_bytes}")
    if hashlib.sha256(weights).hexdigest() != manifest.weights_sha256:
        raise _unreadable(path, f"{WEIGHTS} isn't the file that {MANIFEST} names: its digest differs")
    try:
        with np.load(io.BytesIO(weights), allow_pickle=False) as arrays:
            return manifest, _model(manifest.kind, arrays)
    except (ValueError, KeyError, OSError, TypeError, zipfile.BadZipFile) as error:
        raise _unreadable(path, f"{WEIGHTS} doesn't hold a model of {manifest.kind}: {error}") from error


def _manifest(path: Path) -> RewardManifest:
    content = _content(path)
    try:
        manifest = RewardManifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _unreadable(path.parent, f"{MANIFEST} is damaged ({where}: {first['msg']})") from error
    if manifest.format != FORMAT:
        raise _unreadable(
            path.parent, f"{MANIFEST} has format {manifest.format}, and this burnish reads {FORMAT}"
        )
    return manifest


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _unreadable(path.parent, f"{path.name} is longer than {MOST_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path.parent, f"{path.name} can't be read: {error.strerror or error}") from error


def _unreadable(path: Path, why: str) -> UnreadableRewardModel:
    return UnreadableRewardModel(
        f"the reward model in {path} can't be read: {why}. Run `burnish reward train` to make another one"
    )


def _arrays(model: Ensemble) -> tuple[Kind, dict[str, np.ndarray[Any, Any]]]:
    members = model.members
    if isinstance(members, Perceptrons):
        embedding = members.embedding
        weights = {name: getattr(members, name) for name in PERCEPTRONS}
        table = embedding.directions.astype(np.float16)
        return "embeddings", {**weights, "vocabulary": _packed(embedding.vocabulary), "table": table}
    common = {"coefficients": members.coefficients, "constants": members.constants}
    if isinstance(members.features, Form):
        return "form", {**common, "mean": members.features.mean, "scale": members.features.scale}
    return "words", {**common, "vocabulary": _packed(members.features.vocabulary)}


def _model(kind: Kind, arrays: Arrays) -> Ensemble:
    """Raises ValueError, KeyError."""
    vocabulary = () if kind == "form" else _unpacked(arrays["vocabulary"])
    weights = _checked(SHAPES[kind], arrays, len(vocabulary))
    if kind == "embeddings":
        embedding = Embedding(vocabulary, weights.pop("table").astype(np.float32))
        if weights["hidden"].shape[1] != 2 * embedding.width:
            raise ValueError(f"the table has {embedding.width} columns, not half as many as hidden has rows")
        return Ensemble(Perceptrons(embedding, **weights))
    form = kind == "form"
    features = Form(weights["mean"], weights["scale"]) if form else Words(vocabulary)
    return Ensemble(Ridges(features, weights["coefficients"], weights["constants"]))


def _checked(shapes: Mapping[str, str], arrays: Arrays, words: int) -> dict[str, Vector]:
    """Return arrays as float64. Raises ValueError if their shapes don't fit each other, or one isn't of numbers."""
    sizes, weights = {"V": words}, {}
    for name, axes in shapes.items():
        array = np.asarray(arrays[name], dtype=np.float64)
        sizes = dict(zip(axes, array.shape, strict=False)) | sizes
        expected = tuple(sizes.get(axis, 0) for axis in axes)
        if array.shape != expected:
            raise ValueError(f"{name} has the shape {array.shape}, not {expected}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds values that are no numbers")
        weights[name] = array
    return weights


def _packed(words: tuple[str, ...]) -> np.ndarray[Any, Any]:
    return np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)


def _unpacked(words: np.ndarray[Any, Any]) -> tuple[str, ...]:
    vocabulary = json.loads(words.tobytes())
    if not isinstance(vocabulary, list) or not all(isinstance(word, str) for word in vocabulary):
        raise ValueError("the vocabulary isn't a list of words")
    return tuple(vocabulary)
