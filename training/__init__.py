"""From ratings to a candidate adapter. A step runs as ``python -m burnish.training train|evaluate DIR``.

``burnish.training.job`` has what others need to write a job and read its outcome. The settings import this for the
hyper-parameters, so it imports neither a framework nor numpy.
"""

from burnish.config.hyperparameters import Hyperparameters
from burnish.training.errors import Diverged, JobError, MissingDependency, NotTrainable, TrainingError

__all__ = [
    "Diverged",
    "Hyperparameters",
    "JobError",
    "MissingDependency",
    "NotTrainable",
    "TrainingError",
]
