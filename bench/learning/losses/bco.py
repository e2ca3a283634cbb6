"""BCO: a classifier of good and bad replies whose logit is the implicit reward."""

from __future__ import annotations

from burnish.training.job import Hyperparameters
from burnish.training.objectives import Array, Batch, Functions

# As in TRL, the shift is a moving average.
DECAY = 0.9


class Bco:
    """Source: arXiv 2404.04656, equation 11 (reward shift, no underlying-distribution matching).

    One instance serves one run: it keeps the shift between steps. A run that was killed starts it again at 0.
    """

    def __init__(self) -> None:
        self.shift = 0.0
        """Mean log ratio of a reply (nats)."""

    def __call__(self, batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
        """Return ``Σ_i −w_i |A_i| · log σ(±β · (log_ratio_i − shift))``, + for good replies, − for bad ones.

        The absolute advantage balances the classes.
        """
        ratio = batch.log_ratio(batch.reference, xp).sum(axis=1)  # (B,)
        logit = config.beta * (ratio - self.shift) * (2.0 * batch.good - 1.0)
        found = -(batch.weights * abs(batch.advantages[:, 0]) * xp.log_sigmoid(logit)).sum()
        self.shift = DECAY * self.shift + (1 - DECAY) * float(xp.constant(ratio).sum()) / len(ratio)
        return found


loss = Bco()
