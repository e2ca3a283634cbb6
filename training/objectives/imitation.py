"""Imitation: ``sft`` of good replies, ``distil`` of a teacher's probabilities at each token of a reply.

Sources of ``distil``: soft targets, Hinton et al., arXiv 1503.02531, at a temperature of 1; a model with something in
its context teaches the same model without, arXiv 2209.15189.

The teacher is scored before the run, and only its K likeliest tokens are kept. All other tokens are one more group:
with p and q renormalised over the K, a student could give its probability to any other token and pay nothing. By the
log-sum inequality the divergence between groups is at most the one between tokens; with K = V − 1 both are equal.

arXiv 2601.20802 minimises KL(student ‖ teacher) on the student's replies. This is KL(teacher ‖ student) on given
replies, so nothing is sampled during the run.
"""

from __future__ import annotations

from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Array, Batch, Functions


def sft(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −log π_it + kl_beta · k3_it )`` over the good replies."""
    likelihood = xp.where(batch.mask, batch.policy, 0.0).sum(axis=1) / batch.tokens(xp)
    each = batch.penalty(config, xp) - likelihood
    return xp.where(batch.good, batch.weights * each, 0.0).sum()


def distil(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −Σ_k p_itk · log q_itk + kl_beta · k3_it )``; p is the teacher, q the student.

    That is ``KL(p ‖ q)`` plus the entropy of p, which has no gradient.
    """
    cross_entropy = xp.where(batch.mask, -(batch.teacher * batch.student).sum(axis=2), 0.0)
    each = cross_entropy.sum(axis=1) / batch.tokens(xp) + batch.penalty(config, xp)
    return (batch.weights * each).sum()
