"""The heads of long prompts: their keys and values are computed without a gradient, once for all that share one.

An agent sends thousands of tokens of rules and tools before each question. Models with recurrent layers read their
prompts whole.
"""

from __future__ import annotations

from os.path import commonprefix
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from burnish.training.backends.base import Policy

# Of layers that may be recomputed although they are given keys and values; transformers 5.0 has no such thing.
CHECKPOINTED = "_can_checkpoint_with_cache"

ATTENTION_CACHES = {DynamicLayer, DynamicSlidingWindowLayer}


class Head(DynamicCache):  # type: ignore[misc]
    """Keys and values that each row of a batch continues. It takes up nothing, so a layer can be recomputed."""

    def __init__(self, layers: list[DynamicLayer], length: int) -> None:
        super().__init__()
        self.pairs = [(layer.keys[:, :, :length], layer.values[:, :, :length]) for layer in layers]
        for layer_idx, (keys, values) in enumerate(self.pairs):
            super().update(keys, values, layer_idx)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = (old.expand(len(key_states), -1, -1, -1) for old in self.pairs[layer_idx])
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)

    def continued(self, rows: int, cache: DynamicCache) -> DynamicCache:
        """Fill a cache with it, once for each row."""
        for layer_idx, pair in enumerate(self.pairs):
            cache.update(*(old.expand(rows, -1, -1, -1) for old in pair), layer_idx)
        return cache


class Heads:
    """The latest head of a model under one policy; the next one is computed from where it differs."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._policy: Policy | None = None
        self._ids: tuple[int, ...] = ()
        self._layers: list[Any] = []
        layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
        self.possible = kinds <= ATTENTION_CACHES and all(hasattr(layer, CHECKPOINTED) for layer in layers)
        for layer in layers:
            setattr(layer, CHECKPOINTED, True)

    def of(self, policy: Policy) -> None:
        """From here on, the model acts as this policy."""
        if policy != self._policy:
            self.forget()
        self._policy = policy

    def forget(self) -> None:
        """The weights are others now."""
        self._ids, self._layers = (), []

    def read(self, ids: tuple[int, ...]) -> Head:
        shared = len(commonprefix([self._ids, ids]))  # noqa: RUF071, tokens are meant
        if shared < len(ids):
            cache = DynamicCache()  # without windows, so that it can be cut anywhere; masks see to them
            if shared:
                Head(self._layers, shared).continued(1, cache)
            device = self._model.device
            with torch.no_grad():
                self._model(
                    input_ids=torch.tensor([ids[shared:]], device=device),
                    position_ids=torch.arange(shared, len(ids), device=device)[None],
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
            self._ids, self._layers = ids, cache.layers
        return Head(self._layers, len(ids))
