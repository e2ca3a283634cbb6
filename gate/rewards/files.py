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
from pydantic import BaseModel, ConfigDict, ValidationError

from burnish.adapters.errors import UnreadableRewardModel
from burnish.gate.rewards.features import Embedding, Form, Vector, Words
from burnish.gate.rewards.model import Ensemble, Order, Perceptrons, Ridges
from burnish.system import durable

FORMAT = 1
MANIFEST, WEIGHTS = "reward.json", "weights.npz"
MOST_BYTES = 512 * 1024 * 1024
"""A longer file of weights isn't one of ours."""

PERCEPTRONS = ("mean", "scale", "hidden", "hidden_bias", "out", "out_bias")
Arrays = Mapping[str, np.ndarray[Any, Any]]
Kind = Literal["form", "words", "embeddings"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Trial(_Record):
    """One form of reward model, and how it ordered ratings that it hadn't seen."""

    model_config = ConfigDict(extra="ignore")  # models saved earlier have `serves`

    name: str
    share: float | None = None
    """Of (better, worse) pairs in the right order; None: it couldn't be tried."""
    error: float | None = None
    """Its standard error."""
    reason: str | None = None
    """Why it couldn't be tried, or why it isn't used although it is the best."""

    @property
    def order(self) -> Order | None:
        return None if self.share is None or self.error is None else Order(self.share, self.error)


class LearntFrom(_Record):
    """The feedback behind a reward model."""

    good: int
    bad: int
    graded: int
    """Ratings between good and bad, on a scale."""
    pairs: int
    """Replies that were preferred over others, corrections included."""
    conversations: int
    left_out: dict[str, int] = {}
    """Feedback that couldn't be used, by reason."""


class RewardManifest(_Record):
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
    weights = _content(path / WEIGHTS, MOST_BYTES)
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
    content = _content(path, MOST_BYTES)
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


def _content(path: Path, most: int) -> bytes:
    try:
        if path.stat().st_size > most:
            raise _unreadable(path.parent, f"{path.name} is longer than {most} bytes")
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
    assert isinstance(members, Ridges)
    common = {"coefficients": members.coefficients, "constants": members.constants}
    if isinstance(members.features, Form):
        return "form", {**common, "mean": members.features.mean, "scale": members.features.scale}
    return "words", {**common, "vocabulary": _packed(members.features.vocabulary)}


def _model(kind: Kind, arrays: Arrays) -> Ensemble:
    """Raises ValueError, KeyError."""
    if kind == "embeddings":
        return Ensemble(_perceptrons(arrays))
    features: Form | Words
    if kind == "form":
        mean = _vector(arrays, "mean", None)
        features, width = Form(mean, _vector(arrays, "scale", len(mean))), len(mean)
    else:
        features = Words(_unpacked(arrays["vocabulary"]))
        width = len(features.vocabulary)
    constants = _vector(arrays, "constants", None)
    return Ensemble(Ridges(features, _finite(arrays, "coefficients", (len(constants), width)), constants))


def _perceptrons(arrays: Arrays) -> Perceptrons:
    """Raises ValueError, KeyError."""
    vocabulary = _unpacked(arrays["vocabulary"])
    members, features, units = arrays["hidden"].shape
    table = _finite(arrays, "table", (len(vocabulary), features // 2)).astype(np.float32)
    shapes = {
        "mean": (features,),
        "scale": (features,),
        "hidden": (members, features, units),
        "hidden_bias": (members, units),
        "out": (members, units),
        "out_bias": (members,),
    }
    weights = {name: _finite(arrays, name, shape) for name, shape in shapes.items()}
    return Perceptrons(Embedding(vocabulary, table), **weights)


def _packed(words: tuple[str, ...]) -> np.ndarray[Any, Any]:
    return np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)


def _unpacked(words: np.ndarray[Any, Any]) -> tuple[str, ...]:
    vocabulary = json.loads(words.tobytes())
    if not isinstance(vocabulary, list) or not all(isinstance(word, str) for word in vocabulary):
        raise ValueError("the vocabulary isn't a list of words")
    return tuple(vocabulary)


def _vector(arrays: Arrays, name: str, size: int | None) -> Vector:
    array = arrays[name]
    return _finite(arrays, name, (len(array) if size is None and array.ndim else size or 0,))


def _finite(arrays: Arrays, name: str, shape: tuple[int, ...]) -> Vector:
    """Return an array as float64. Raises ValueError if it has another shape, or holds what isn't a number."""
    array = np.asarray(arrays[name], dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}, not {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are no numbers")
    return array
