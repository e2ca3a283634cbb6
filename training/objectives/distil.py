"""Distillation: learn how the teacher would go on at each token, not only what it happened to say.

Source: soft targets, Hinton et al., arXiv 1503.02531, at a temperature of 1; from the model that has something in its
context to the same model without, arXiv 2209.15189. The teacher is noted down before the run, so only its K likeliest
tokens are. All others are one more group: with p and q renormalised over the K, a student could give its
probability to any other token and pay nothing. By the log-sum inequality the divergence between groups is at most the
one between tokens, and with K = V − 1 it is that one.

Unlike 2601.20802, which minimises KL(student ‖ teacher) on what the student says, this is KL(teacher ‖ student) on what
the teacher says: nothing is sampled during the run.
"""

from __future__ import annotations

from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Array, Batch, Functions
from burnish.training.objectives.mis_po import penalty


def distil(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −Σ_k p_itk · log q_itk + kl_beta · k3_it )``; p is the teacher, q the student.

    That is ``KL(p ‖ q)`` plus the entropy of p, which has no gradient.
    """
    cross_entropy = xp.where(batch.mask, -(batch.teacher * batch.student).sum(axis=2), 0.0)
    each = cross_entropy.sum(axis=1) / batch.tokens(xp) + penalty(batch, config, xp)
    return (batch.weights * each).sum()
