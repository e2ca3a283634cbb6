"""What is learnt by: one loss a file, all of the same signature (``arrays.Loss``)."""

from collections.abc import Callable, Mapping, Sequence

from burnish.training.job import LossName
from burnish.training.objectives.arrays import Loss
from burnish.training.objectives.distil import distil
from burnish.training.objectives.mis_po import mis_po, mis_po_published, mis_po_rival
from burnish.training.objectives.preference import bco, dpo, kl_point, kto, reward_point
from burnish.training.objectives.reinforce import reinforce
from burnish.training.objectives.sft import sft

LOSSES: Mapping[LossName, Loss] = {
    "mis_po": mis_po,
    "mis_po_published": mis_po_published,
    "mis_po_rival": mis_po_rival,
    "reinforce": reinforce,
    "kto": kto,
    "bco": bco,
    "dpo": dpo,
    "sft": sft,
    "distil": distil,
}

POINTS: Mapping[LossName, Callable[[Sequence[Mapping[str, float]]], float]] = {
    "kto": kl_point,
    "bco": reward_point,
}
"""How ``Batch.point`` follows from the metrics of the latest steps; the other losses have none."""

__all__ = ["LOSSES", "POINTS"]
