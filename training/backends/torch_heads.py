"""Heads of long prompts in torch; models with recurrent layers read their prompts whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from burnish.training.backends.heads import Ids, Pairs

# Of layers that may be recomputed although they are given keys and values; transformers 5.0 has no such thing.
CHECKPOINTED = "_can_checkpoint_with_cache"
ATTENTION_CACHES = {DynamicLayer, DynamicSlidingWindowLayer}


class Head(DynamicCache):  # type: ignore[misc]
    """Keys and values that each row of a batch continues. It takes up nothing, so a layer can be recomputed."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__()
        self.pairs = pairs
        for layer_idx, pair in enumerate(pairs):
            super().update(*pair, layer_idx)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = (old.expand(len(key_states), -1, -1, -1) for old in self.pairs[layer_idx])
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)


def growing(pairs: Pairs, rows: int) -> DynamicCache:
    """Return a cache of so many rows that begin with a head; windows are no matter of it, but of masks."""
    cache = DynamicCache()
    for layer_idx, pair in enumerate(pairs):
        cache.update(*(old.expand(rows, -1, -1, -1) for old in pair), layer_idx)
    return cache


def has_heads(model: Any) -> bool:
    """Return whether the model can go on from keys and values, and prepare its layers."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    if not (kinds <= ATTENTION_CACHES and all(hasattr(layer, CHECKPOINTED) for layer in layers)):
        return False
    for layer in layers:
        setattr(layer, CHECKPOINTED, True)
    return True


def continued(model: Any, pairs: Pairs, ids: Ids) -> Pairs:
    """Compute the keys and values of tokens behind others, without a gradient; return all."""
    cache = growing(pairs, 1)
    begin = cache.get_seq_length()
    with torch.no_grad():
        model(
            input_ids=torch.tensor([ids], device=model.device),
            position_ids=torch.arange(begin, begin + len(ids), device=model.device)[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
    return [(layer.keys, layer.values) for layer in cache.layers]
