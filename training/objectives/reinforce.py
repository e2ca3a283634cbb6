"""REINFORCE with a baseline and a penalty on the distance from the bare model.

Source: Williams 1992 (doi:10.1007/BF00992696); the penalty inside the advantage as in REINFORCE++ (arXiv 2501.03262).
No correction for replies that another version generated: what ``mis_po`` adds shows against this.
"""

from __future__ import annotations

from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Array, Batch, Functions


def reinforce(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −(A_it − kl_beta · log(π_it / π_ref,it)) · log π_it )``, the bracket detached."""
    distance = xp.constant(batch.log_ratio(batch.reference, xp))
    pull = xp.where(batch.mask, (batch.advantages - config.kl_beta * distance) * batch.policy, 0.0)
    return -(batch.weights * pull.sum(axis=1) / batch.tokens(xp)).sum()
