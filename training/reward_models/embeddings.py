"""The form *embeddings*: a small MLP on mean question ⊕ mean reply embeddings of the base model. Needs torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from burnish.gate.preference import Ensemble
from burnish.gate.preference.base import Vector
from burnish.gate.preference.embedding import LONGEST_PIECE, Embedding, Perceptrons
from burnish.training.reward_models.fitting import MEMBERS, fit, targets
from burnish.training.reward_models.forms import EMBEDDINGS
from burnish.training.reward_models.ratings import Places, Ratings

DIRECTIONS = 64
"""Of the embeddings, those in which they differ most. More are slower and, from a few dozen ratings, no better."""
HIDDEN = 16
DECAY = 0.3
NO_SPREAD = 1e-6
"""Below, values differ by rounding only: all questions may be the same."""


class Embeddings:
    name = EMBEDDINGS
    objective = "logistic loss on thumbs, squared error on grades, Bradley-Terry on pairs; five MLPs of 16 hidden units"

    def __init__(self, embedding: Embedding, seed: int) -> None:
        self._embedding = embedding
        self._seed = seed

    def learn_and_score(self, ratings: Ratings, training: Places, unseen: Places) -> Vector:
        model = self.learn(ratings.of(training))
        return model.scores([ratings.replies[place].reply for place in unseen])

    def learn(self, ratings: Ratings) -> Ensemble:
        features = self._embedding.features([rating.reply for rating in ratings.replies])
        mean, spread = features.mean(axis=0), features.std(axis=0)
        scale = np.where(spread > NO_SPREAD, spread, 1.0)
        table = torch.tensor((features - mean) / scale, dtype=torch.float32)
        weights = _random(2 * self._embedding.width, self._seed)
        first, bias, out, level = weights

        def logits() -> Tensor:
            layer = (table @ first + bias[:, None]).tanh()
            return (layer @ out[:, :, None])[:, :, 0] + level[:, None]

        fit(weights, logits, targets(ratings, self._seed), DECAY)
        return Ensemble(
            Perceptrons(
                self._embedding,
                mean,
                scale,
                *(tensor.detach().numpy().astype(np.float64) for tensor in weights),
            )
        )


def _random(inputs: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((MEMBERS, inputs, HIDDEN), (MEMBERS, HIDDEN), (MEMBERS, HIDDEN), (MEMBERS,))
    scales = (inputs**-0.5, 0.0, HIDDEN**-0.5, 0.0)
    return [
        (torch.randn(size, generator=generator) * scale).requires_grad_()
        for size, scale in zip(sizes, scales, strict=True)
    ]


def embedding_of(tokenizer: Any, model: Any) -> Embedding:
    """Return the vocabulary and the main directions of the input embeddings."""
    table = model.get_input_embeddings().weight.detach().to(torch.float32).numpy()
    pieces = _pieces(tokenizer, len(table))
    rows = main_directions(table[list(pieces.values())], DIRECTIONS)
    return Embedding(tuple(pieces), rows.astype(np.float16).astype(np.float32))


def _pieces(tokenizer: Any, count: int) -> dict[str, int]:
    """Return the texts of tokens that are whole characters, and their numbers."""
    special = set(tokenizer.all_special_ids)
    pieces: dict[str, int] = {}
    for number in range(min(count, len(tokenizer))):
        text = tokenizer.decode([number], clean_up_tokenization_spaces=False)
        if number not in special and 0 < len(text) <= LONGEST_PIECE and "\ufffd" not in text:
            pieces.setdefault(text, number)
    return pieces


def main_directions(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Return rows (N, F) in the directions of their largest variance, (N, min(count, F)); the largest is 1."""
    middle = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(middle.T @ middle / len(rows))
    directions = vectors[:, ::-1][:, :count]
    return np.asarray(middle @ directions / np.sqrt(max(float(values[-1]), 1e-12)), dtype=np.float32)
