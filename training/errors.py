"""The errors of training.

- TrainingError
    - JobError (ValueError)              the job directory is incomplete or damaged
    - NotTrainable (ValueError)          the ratings cannot teach anything (one-sided, too few)
    - Diverged (ArithmeticError)         NaN or infinite loss, or KL out of bounds
    - MissingDependency (ImportError)    neither extra, "train" or "mlx", is installed
"""

from __future__ import annotations


class TrainingError(Exception):
    """Root of this room's errors; the message says what to do next."""


class JobError(TrainingError, ValueError):
    """The job directory is incomplete or damaged."""


class NotTrainable(TrainingError, ValueError):
    """The ratings cannot teach anything as they are."""


class Diverged(TrainingError, ArithmeticError):
    """The loss became NaN or infinite, or the policy left its limits."""


class MissingDependency(TrainingError, ImportError):
    """Neither extra, "train" or "mlx", is installed."""

    @classmethod
    def because(cls, error: ImportError) -> MissingDependency:
        """Say how to install what an import did not find."""
        return cls(
            f'training needs more packages ({error}): run  pip install "burnish[train]"  (or '
            '"burnish[mlx]" on Apple\'s processors)'
        )
