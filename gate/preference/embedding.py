"""Replies as means of the base model's input embeddings, without the model: a table of a few megabytes is enough.

Texts are cut into the longest pieces that the model's vocabulary has. That isn't exactly what its tokenizer does, but
learning and scoring cut alike, and need no tokenizer. Numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from burnish.gate.preference.base import Vector
from burnish.gate.preference.views import PlainReply

LONGEST_PIECE = 16
"""Characters. Longer ones are rare, and are cut."""
MOST_CHARACTERS = 20_000
"""Of a text; what follows says little more of its mean."""


@dataclass(frozen=True)
class Embedding:
    """The vocabulary and, for each piece, a few directions of its embedding."""

    vocabulary: tuple[str, ...]
    table: NDArray[np.float32]
    """(V, D)."""
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {piece: place for place, piece in enumerate(self.vocabulary)})

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    def features(self, replies: Sequence[PlainReply]) -> Vector:
        """Return mean question ⊕ mean reply, (N, 2 D)."""
        table = np.zeros((len(replies), 2 * self.width))
        for row, reply in zip(table, replies, strict=True):
            row[: self.width], row[self.width :] = self._mean(reply.question), self._mean(reply.text)
        return table

    def _mean(self, text: str) -> Vector:
        places = list(self._cut(text[:MOST_CHARACTERS]))
        return self.table[places].mean(axis=0, dtype=np.float64) if places else np.zeros(self.width)

    def _cut(self, text: str) -> Iterator[int]:
        """Yield the places of a text's pieces; characters that no piece has are passed over."""
        at, places = 0, self._places
        while at < len(text):
            for size in range(min(LONGEST_PIECE, len(text) - at), 0, -1):
                if (place := places.get(text[at : at + size])) is not None:
                    yield place
                    at += size
                    break
            else:
                at += 1


@dataclass(frozen=True, slots=True)
class Perceptrons:
    """Multilayer perceptrons with one hidden layer: w₂ · tanh(W₁ (x − m) / s + b₁) + b₂."""

    embedding: Embedding
    mean: Vector
    """Of the features, (2 D,)."""
    scale: Vector
    """(2 D,)."""
    hidden: Vector
    """W₁, (M, 2 D, H)."""
    hidden_bias: Vector
    """(M, H)."""
    out: Vector
    """(M, H)."""
    out_bias: Vector
    """(M,)."""

    def logits(self, replies: Sequence[PlainReply]) -> Vector:
        features = (self.embedding.features(replies) - self.mean) / self.scale
        layer = np.tanh(np.einsum("nf,mfh->mnh", features, self.hidden) + self.hidden_bias[:, None])
        return np.asarray(np.einsum("mnh,mh->mn", layer, self.out) + self.out_bias[:, None])
