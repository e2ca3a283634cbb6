"""From ratings to a candidate adapter. Public here is what others need to write a job and read its outcome.

A step runs as ``python -m burnish.training train|evaluate DIR``. Importing this imports no framework.
"""

from burnish.training.errors import Diverged, JobError, MissingDependency, NotTrainable, TrainingError
from burnish.training.job import (
    Evaluation,
    Hyperparameters,
    JobDirectory,
    JobSpec,
    Rollout,
    Sample,
    TrainResult,
)
from burnish.training.presets import Preset, hyperparameters

__all__ = [
    "Diverged",
    "Evaluation",
    "Hyperparameters",
    "JobDirectory",
    "JobError",
    "JobSpec",
    "MissingDependency",
    "NotTrainable",
    "Preset",
    "Rollout",
    "Sample",
    "TrainResult",
    "TrainingError",
    "hyperparameters",
]
