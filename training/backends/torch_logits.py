"""From logits to log-probabilities and to sampled replies, as cheaply as a laptop needs it.

The vocabulary in fp32 is the trainer's largest tensor, so it is read in slices. Each slice is recomputed in the
backward pass instead of being kept.

The usual sampling loop drags rows along that have long finished, and sorts the whole vocabulary for each token. Here a
row that is done leaves the batch, and the nucleus is looked for among the likeliest tokens first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from burnish.training.backends.base import Sampled
from burnish.training.backends.heads import Pairs
from burnish.training.backends.torch_heads import growing
from burnish.training.comments import TEMPERATURE, TOP_P

# Rows of logits that are in fp32 at once: so many stay in a processor's cache.
LOGIT_ROWS = 16
# Of keys and values while sampling: the small model needs 46 kB a token in bf16, an 8B model 130 kB.
CACHED_TOKENS = 4096


def token_logps(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log softmax(logits)[target] in fp32: (…, V), (…) → (…)."""

    def of_slice(rows: Tensor, ids: Tensor) -> Tensor:
        return rows.log_softmax(dim=1, dtype=torch.float32).gather(1, ids)

    return _in_slices(of_slice, logits, targets[..., None]).squeeze(-1)


def group_logps(logits: Tensor, ids: Tensor) -> Tensor:
    """Return log softmax(logits)[ids], and that of all other tokens together: (…, V), (…, K) → (…, K + 1).

    The others are summed themselves: one minus the sum of the likeliest is lost in rounding where they are sure.
    """

    def of_slice(rows: Tensor, ids: Tensor) -> Tensor:
        logps = rows.log_softmax(dim=1, dtype=torch.float32)
        remainder = logps.scatter(1, ids, -torch.inf).logsumexp(dim=1, keepdim=True)
        return torch.cat([logps.gather(1, ids), remainder], dim=1)

    return _in_slices(of_slice, logits, ids)


def _in_slices(of_slice: Callable[[Tensor, Tensor], Tensor], logits: Tensor, ids: Tensor) -> Tensor:
    slices = zip(*(torch.split(tensor.flatten(0, -2), LOGIT_ROWS) for tensor in (logits, ids)), strict=True)
    logps = torch.cat([checkpoint(of_slice, *pair, use_reentrant=False) for pair in slices])
    return logps.view(*ids.shape[:-1], -1)


# Holds 95 % of the probability nearly always; sorting 49k entries costs as much as a layer.
LIKELY = 256


def sampled_together(
    heads: Sequence[tuple[int, ...]], lengths: Sequence[int], limits: Sequence[int]
) -> list[list[int]]:
    """Group places of prompts with the same head, similar limits and lengths together, so that caches stay small."""
    order = sorted(range(len(lengths)), key=lambda place: (heads[place], limits[place], lengths[place]))
    width = max(lengths, default=1) + max(limits, default=0)
    rows = max(1, CACHED_TOKENS // width)
    alike = [list(places) for _, places in groupby(order, key=lambda place: heads[place])]
    return [places[start : start + rows] for places in alike for start in range(0, len(places), rows)]


def draw(
    model: Any,
    ids: Tensor,
    attended: Tensor,
    end_ids: Collection[int],
    limits: Sequence[int],
    *,
    head: Pairs = (),
    greedy: bool = False,
) -> list[Sampled]:
    """Return one sampled reply per row of left-padded prompts, (B, P), of at most as many tokens as its limit, (B,).

    ``head``: keys and values of what all prompts begin with; it isn't among ``ids``.
    """
    drawn: list[list[int]] = [[] for _ in ids]
    logps: list[list[float]] = [[] for _ in ids]
    ends = torch.tensor(sorted(end_ids), device=ids.device)
    rows = torch.arange(len(ids), device=ids.device)  # whose prompts are still being answered
    most = torch.tensor(limits, device=ids.device)
    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    position = (attended.cumsum(dim=1) - 1).clamp(min=0)  # (B, P)
    if head:
        cache = growing(head, len(ids))
        length = cache.get_seq_length()
        position = position + length
        attended = torch.cat([attended.new_ones(len(ids), length), attended], dim=1)
    for count in range(1, max(limits) + 1):
        logits = model(
            input_ids=ids,
            attention_mask=attended,
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]  # (B, V)
        logits = logits.float()
        tokens = logits.argmax(dim=1) if greedy else from_nucleus(logits / TEMPERATURE, TOP_P)  # (B,)
        likely = logits.gather(1, tokens[:, None]).squeeze(1) - logits.logsumexp(dim=1)  # (B,)
        for row, token, logp in zip(rows.tolist(), tokens.tolist(), likely.tolist(), strict=True):
            drawn[row].append(token)
            logps[row].append(logp)
        going = (torch.isin(tokens, ends, invert=True) & (most > count)).nonzero().flatten()
        if not len(going):
            break
        if len(going) < len(rows):
            cache.batch_select_indices(going)
            rows, most, tokens, attended, position = (
                tensor[going] for tensor in (rows, most, tokens, attended, position)
            )
        ids, position = tokens[:, None], position[:, -1:] + 1
        attended = torch.cat([attended, torch.ones_like(ids)], dim=1)
    return [
        Sampled(tuple(reply), tuple(scored), finished=reply[-1] in end_ids)
        for reply, scored in zip(drawn, logps, strict=True)
    ]


def from_nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Draw from the smallest set of likeliest tokens that holds ``top_p`` of the probability: (B, V) → (B,).

    Source: nucleus sampling, arXiv 1904.09751.
    """
    probability = logits.softmax(dim=1)
    likely, ids = probability.topk(min(LIKELY, probability.shape[1]))
    if (likely.sum(dim=1) < top_p).any():
        likely, ids = probability.sort(dim=1, descending=True)
    mass = likely.cumsum(dim=1) - likely
    place = torch.multinomial(likely.masked_fill(mass >= top_p, 0), 1)
    return ids.gather(1, place).squeeze(1)
