"""The form *hidden states*: a gated linear head on the frozen base's hidden states of a reply. Needs torch.

r = Σ_t σ(w_g·h_t) (w_r·h_t) / Σ_t σ(w_g·h_t): each token says how good the reply is, and how much that counts (SWIFT,
arXiv:2505.12225). A reply has to go through the model, so this form doesn't score while burnish serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from burnish.adapters.rewards.base import Vector
from burnish.adapters.rewards.ensemble import cautious
from burnish.training.reward_models.embeddings import NO_SPREAD, main_directions
from burnish.training.reward_models.fitting import MEMBERS, fit, targets
from burnish.training.reward_models.forms import HIDDEN_STATES
from burnish.training.reward_models.ratings import Places, Ratings

DIRECTIONS = 64
"""Of the hidden states. All 576 of the small model's learnt 32 ratings by heart."""
TOKENS = 256
"""Of a reply; 512 replies of so many take 34 MB."""
QUESTION_TOKENS = 128
"""The last ones."""
DECAY = 0.3


class HiddenStates:
    name = HIDDEN_STATES
    serves = False
    objective = "as embeddings; five gated linear heads"

    def __init__(self, states: Tensor, mask: Tensor, seed: int) -> None:
        """``states``: (N, T, D), of all replies of the ratings that it will learn from; ``mask``: (N, T)."""
        self._states = states
        self._mask = mask
        self._seed = seed

    def learn_and_score(self, ratings: Ratings, seen: Places, unseen: Places) -> Vector:
        generator = torch.Generator().manual_seed(self._seed)
        width = self._states.shape[2]
        gate, head = (
            (torch.randn(MEMBERS, width, generator=generator) * width**-0.5).requires_grad_()
            for _ in range(2)
        )
        level = torch.zeros(MEMBERS, requires_grad=True)

        def logits(places: Places) -> Tensor:
            states = self._states[places]
            gates = torch.einsum("ntd,md->mnt", states, gate).sigmoid() * self._mask[places]
            values = torch.einsum("ntd,md->mnt", states, head)
            return (gates * values).sum(dim=2) / gates.sum(dim=2).clamp(min=1e-6) + level[:, None]

        fit([gate, head, level], lambda: logits(seen), targets(ratings.of(seen), self._seed), DECAY)
        with torch.no_grad():
            return cautious(logits(unseen).numpy().astype(np.float64))

    def learn(self, ratings: Ratings) -> None:
        """Nothing scores by it later."""


def states_of(tokenizer: Any, model: Any, ratings: Ratings) -> tuple[Tensor, Tensor]:
    """Return the main directions of the middle layer's states of all replies, (N, T, D), and which tokens there are."""
    layer = model.config.num_hidden_layers // 2
    found = []
    with torch.no_grad():
        for each in ratings.replies:
            question = _ids(tokenizer, each.prompt)[-QUESTION_TOKENS:]
            reply = _ids(tokenizer, f"\n{each.text}")[:TOKENS]
            ids = torch.tensor([[*question, *reply]])
            states = model(ids, output_hidden_states=True, use_cache=False).hidden_states[layer][0]
            found.append(states[len(question) :].numpy())
    reduced = _reduced(found)
    mask = pad_sequence([torch.ones(len(each)) for each in reduced], batch_first=True)
    return pad_sequence([torch.from_numpy(each) for each in reduced], batch_first=True), mask


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _reduced(states: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    rows = main_directions(np.concatenate(states), DIRECTIONS)
    spread = rows.std(axis=0)
    rows /= np.where(spread > NO_SPREAD, spread, 1.0)
    return np.split(rows, np.cumsum([len(each) for each in states])[:-1])
