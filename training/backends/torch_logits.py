"""From logits to log-probabilities, in slices: the vocabulary in fp32 is the trainer's largest tensor.

Each slice is recomputed in the backward pass instead of being kept.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Rows of logits that are in fp32 at once: 128 rows of a 150k vocabulary are 77 MB.
LOGIT_ROWS = 128


def token_logps(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log softmax(logits)[target] in fp32: (…, V), (…) → (…)."""

    def of_slice(rows: Tensor, wanted: Tensor) -> Tensor:
        rows = rows.float()
        return rows.gather(1, wanted) - rows.logsumexp(dim=1, keepdim=True)

    return _in_slices(of_slice, logits, targets[..., None]).squeeze(-1)


def group_logps(logits: Tensor, ids: Tensor) -> Tensor:
    """Return log softmax(logits)[ids], and that of all other tokens together: (…, V), (…, K) → (…, K + 1).

    The others are summed themselves: one minus the sum of the likeliest is lost in rounding where they are sure.
    """

    def of_slice(rows: Tensor, chosen: Tensor) -> Tensor:
        rows = rows.float()
        others = rows.scatter(1, chosen, -torch.inf).logsumexp(dim=1, keepdim=True)
        return torch.cat([rows.gather(1, chosen), others], dim=1) - rows.logsumexp(dim=1, keepdim=True)

    return _in_slices(of_slice, logits, ids)


def _in_slices(of_slice: Callable[[Tensor, Tensor], Tensor], logits: Tensor, chosen: Tensor) -> Tensor:
    slices = zip(*(torch.split(each.flatten(0, -2), LOGIT_ROWS) for each in (logits, chosen)), strict=True)
    found = torch.cat([checkpoint(of_slice, *pair, use_reentrant=False) for pair in slices])
    return found.view(*chosen.shape[:-1], -1)
