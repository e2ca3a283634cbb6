"""Heads of long prompts in torch.

Models with recurrent layers read their prompts whole, and so do those with sliding windows: between a head and the end
of a prompt there may be padding, which a window would count.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

from burnish.training.backends.heads import Ids, Pairs

# Of layers that may be recomputed although they are given keys and values; transformers 5.0 has no such thing.
CHECKPOINTED = "_can_checkpoint_with_cache"
# What attention behind a head is called among transformers' implementations.
FOLDED = "burnish_folded"
# Scores of one layer that are in memory at once: some hundred megabytes. Beyond, torch's own attention computes them
# bit by bit.
MOST_SCORES = 2**26


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


def folded(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    head: int = 0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return attention, (B, T, heads, width), to ``head`` keys that are the same in all rows, and to the row's own.

    The queries of all rows and of all heads that share a key meet the former in one product, and those have no
    gradient: a third of the time that torch's own attention takes on a CPU.
    """
    rows, heads, tokens, width = query.shape
    if not head or rows * heads * tokens * head > MOST_SCORES:
        own = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return own[0], None
    shared = key.shape[1]
    query = (query * (scaling or width**-0.5)).view(rows, shared, -1, tokens, width)
    flat = query.transpose(0, 1).reshape(shared, -1, width)  # (shared, B · group · T, width)
    early = (flat @ key[0, :, :head].detach().mT).view(shared, rows, -1, tokens, head).transpose(0, 1)
    late = query @ key[:, :, None, head:].mT
    scores = torch.cat([early, late], dim=-1)  # (B, shared, group, T, H + T)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask[:, :, None], -torch.inf)
    weights = scores.softmax(dim=-1)
    flat = weights[..., :head].transpose(0, 1).reshape(shared, -1, head)
    early = (flat @ value[0, :, :head].detach()).view(shared, rows, -1, tokens, width).transpose(0, 1)
    attended = early + weights[..., head:] @ value[:, :, None, head:]
    return attended.reshape(rows, heads, tokens, width).transpose(1, 2), None


def behind(model: Any, pairs: Pairs) -> dict[str, Any]:
    """Return the arguments with which a pass of the model goes on behind a head; without one there are none."""
    if not pairs:
        return {}
    head = Head(pairs)
    if model.config._attn_implementation != FOLDED:
        return {"past_key_values": head}
    return {"past_key_values": head, "head": head.get_seq_length()}


def growing(pairs: Pairs, rows: int) -> DynamicCache:
    """Return a cache of so many rows that begin with a head."""
    cache = DynamicCache()
    for layer_idx, pair in enumerate(pairs):
        cache.update(*(old.expand(rows, -1, -1, -1) for old in pair), layer_idx)
    return cache


def has_heads(model: Any) -> bool:
    """Return whether the model can go on from keys and values, and prepare it for that."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    if kinds != {DynamicLayer} or not all(hasattr(layer, CHECKPOINTED) for layer in layers):
        return False
    for layer in layers:
        setattr(layer, CHECKPOINTED, True)
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        AttentionInterface.register(FOLDED, folded)
        AttentionMaskInterface.register(FOLDED, sdpa_mask)
        model.set_attn_implementation(FOLDED)
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
