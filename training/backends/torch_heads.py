"""Heads of long prompts in torch.

Models with recurrent layers read their prompts whole, and so do those with sliding windows: between a head and the end
of a prompt there may be padding, which a window would count.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

from burnish.training.backends.heads import Ids, Pairs, Woven, woven_tokens

# Of layers that may be recomputed although they are given keys and values; transformers 5.0 has no such thing.
CHECKPOINTED = "_can_checkpoint_with_cache"
# What this attention is called among transformers' implementations.
FOLDED = "burnish_folded"
# Scores of one layer that are in memory at once: some hundred megabytes. Beyond, torch's own attention computes them
# bit by bit.
MOST_SCORES = 2**26


# Relative distance of logits that differ by rounding only. The small model's differ by .01 in bf16, and by .08 to .09
# under wrong positions or a wrong mask.
SAME = 0.03


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

    The queries of all heads that share a key meet it in one product, and those of all rows the keys of the head, which
    have no gradient. That takes less than half of the time of torch's own attention on a CPU.
    """
    rows, heads, tokens, width = query.shape
    keys = key.shape[2]
    too_many = rows * heads * tokens * keys > MOST_SCORES
    # Padded rows have tokens that attend to none.
    if attention_mask is None or not (head or rows == 1) or too_many:
        own = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return own[0], None
    shared = key.shape[1]
    # (B, shared, group · T, width)
    query = (query * (scaling or width**-0.5)).reshape(rows, shared, -1, width)
    scores = query @ key[:, :, head:].mT
    if head:
        flat = query.transpose(0, 1).reshape(shared, -1, width)
        early = (flat @ key[0, :, :head].detach().mT).view(shared, rows, -1, head).transpose(0, 1)
        scores = torch.cat([early, scores], dim=-1)
    scores = scores.view(rows, shared, -1, tokens, keys).masked_fill(~attention_mask[:, :, None], -torch.inf)
    weights = scores.softmax(dim=-1).view(rows, shared, -1, keys)
    attended = weights[..., head:] @ value[:, :, head:]
    if head:
        flat = weights[..., :head].transpose(0, 1).reshape(shared, -1, head)
        early = (flat @ value[0, :, :head].detach()).view(shared, rows, -1, width).transpose(0, 1)
        attended = attended + early
    return attended.view(rows, heads, tokens, width).transpose(1, 2), None


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


def ancestors(woven: Woven) -> tuple[Tensor, Tensor]:
    """Return how many nodes are before each of a tree, (N,), and which it attends to, (N, N)."""
    depths, visible = np.zeros(len(woven.ids), dtype=np.int64), np.eye(len(woven.ids), dtype=bool)
    for node, parent in enumerate(woven.parents):
        if parent >= 0:
            depths[node] = depths[parent] + 1
            visible[node] |= visible[parent]
    return torch.from_numpy(depths), torch.from_numpy(visible)


def weaves(model: Any) -> bool:
    """Return whether a model computes a tree as its sequences. A try tells: some models count positions themselves."""
    sequences = [(20, 25, *range(30, 60, 2)), (20, 25, *range(31, 61, 2))]
    woven = woven_tokens(sequences)
    depths, visible = (tensor.to(model.device) for tensor in ancestors(woven))
    with (
        torch.no_grad(),
        suppress(LookupError, RuntimeError, TypeError, ValueError),
    ):  # another mask is needed
        tree = model(
            input_ids=torch.tensor([woven.ids], device=model.device),
            attention_mask=visible[None, None],
            position_ids=depths[None],
            use_cache=False,
        ).logits[0]
        alone = model(input_ids=torch.tensor(sequences, device=model.device), use_cache=False).logits.float()
        return bool((tree[torch.tensor(woven.paths)] - alone).norm() / alone.norm() < SAME)
    return False


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
