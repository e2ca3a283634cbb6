"""The form *embeddings*: a small MLP on mean question ⊕ mean reply embeddings of the base model. Needs torch.

The members of the ensemble are fitted by gradient descent, all at once. The loss of a member is the sum of three means,
each over the ratings of its kind (s: logit of a reply):

- thumbs: −log σ(±s), both classes weighing the same (logistic regression);
- grades: (σ(s) − (r + 1) / 2)², r in (−1, 1);
- pairs: −log σ(s_better − s_worse) (Bradley and Terry 1952).

Each member sees the ratings as often as they were drawn for it, with replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import AutoModel, AutoTokenizer

from burnish.gate.rewards import Ensemble
from burnish.gate.rewards.features import LONGEST_PIECE, Embedding
from burnish.gate.rewards.model import Perceptrons
from burnish.training.errors import JobError
from burnish.training.rewards.job import THUMB, Ratings

OBJECTIVE = (
    "logistic loss on thumbs, squared error on grades, Bradley-Terry on pairs; five MLPs of 16 hidden units"
)
MEMBERS = 5
HIDDEN = 16
STEPS = 100
LEARNING_RATE = 0.02
DECAY = 0.3
"""Weight decay, apart from the gradient."""
DIRECTIONS = 64
"""Of the embeddings, those in which they differ most. More are slower and, from a few dozen ratings, no better."""
NO_SPREAD = 1e-6
"""Below, values differ by rounding only: all questions may be the same."""


def learn(embedding: Embedding, ratings: Ratings, seed: int) -> Ensemble:
    features = embedding.table([rating.reply for rating in ratings.replies])
    mean, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > NO_SPREAD, spread, 1.0)
    table = torch.tensor((features - mean) / scale, dtype=torch.float32)
    weights = _random(2 * embedding.width, seed)
    first, bias, out, level = weights
    goal = targets(ratings, seed)
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=DECAY, fused=True)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        layer = (table @ first + bias[:, None]).tanh()  # (M, N, H)
        logits = (layer @ out[:, :, None])[:, :, 0] + level[:, None]  # (M, N)
        loss(logits, goal).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    fitted = [tensor.detach().numpy().astype(np.float64) for tensor in weights]
    return Ensemble(Perceptrons(embedding, mean, scale, *fitted))


def _random(inputs: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((MEMBERS, inputs, HIDDEN), (MEMBERS, HIDDEN), (MEMBERS, HIDDEN), (MEMBERS,))
    scales = (inputs**-0.5, 0.0, HIDDEN**-0.5, 0.0)
    return [
        (torch.randn(size, generator=generator) * scale).requires_grad_()
        for size, scale in zip(sizes, scales, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Targets:
    """What was said of N replies, as often as each of M members sees it."""

    thumbs: Tensor
    """+1, −1, or 0 if there is none, (N,)."""
    thumb_weights: Tensor
    """(M, N); they sum to 1, half of it for each class, or are all 0."""
    grades: Tensor
    """In [0, 1], (N,)."""
    grade_weights: Tensor
    """(M, N)."""
    better: Tensor
    """(P,)."""
    worse: Tensor
    """(P,)."""
    pair_weights: Tensor
    """(M, P)."""


def targets(ratings: Ratings, seed: int) -> Targets:
    generator = np.random.default_rng(seed)
    rewards = np.array([line.reward or 0.0 for line in ratings.lines])
    weights = np.array([line.weight for line in ratings.lines])
    thumbs = np.where(np.abs(rewards) == THUMB, np.sign(rewards), 0.0)
    graded = (rewards != 0) & (thumbs == 0)
    drawn = _drawn(generator, len(rewards)) * weights
    halves = [_shares(drawn * (thumbs == sign)) for sign in (1.0, -1.0)]
    pairs = np.array(ratings.pairs, dtype=np.int64).reshape(-1, 2)
    return Targets(
        torch.tensor(thumbs, dtype=torch.float32),
        torch.tensor(sum(halves) / 2, dtype=torch.float32),
        torch.tensor((rewards + 1) / 2, dtype=torch.float32),
        torch.tensor(_shares(drawn * graded), dtype=torch.float32),
        torch.tensor(pairs[:, 0]),
        torch.tensor(pairs[:, 1]),
        torch.tensor(_shares(_drawn(generator, len(pairs)) * weights[pairs[:, 0]]), dtype=torch.float32),
    )


def _drawn(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return how often each is drawn for each member, (M, N)."""
    if not count:
        return np.zeros((MEMBERS, 0))
    drawn: NDArray[np.int64] = generator.multinomial(count, np.full(count, 1 / count), size=MEMBERS)
    return drawn.astype(np.float64)


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    totals = weights.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = weights / np.where(totals > 0, totals, 1.0)
    return shares


def loss(logits: Tensor, targets: Targets) -> Tensor:
    """Return the sum of the members' losses; ``logits``: (M, N)."""
    thumbs = -(logsigmoid(targets.thumbs * logits) * targets.thumb_weights).sum()
    grades = ((logits.sigmoid() - targets.grades).square() * targets.grade_weights).sum()
    pairs = -(logsigmoid(logits[:, targets.better] - logits[:, targets.worse]) * targets.pair_weights).sum()
    return thumbs + grades + pairs


def embedding_of(weights: Path, threads: int) -> Embedding:
    """Return the vocabulary and the main directions of the input embeddings of a Hugging Face directory.

    Nothing is trained, and code in the directory never runs. Raises JobError.
    """
    torch.set_num_threads(threads)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(weights, **options)
        model = AutoModel.from_pretrained(weights, dtype=torch.float32, use_safetensors=True, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise JobError(f"the base model in {weights} can't be loaded: {error}") from error
    table = model.get_input_embeddings().weight.detach().numpy()
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
