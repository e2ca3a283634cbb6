"""The errors of training; each is also the error of the standard library that it resembles."""

from __future__ import annotations

from burnish.system.extras import how_to_install


class TrainingError(Exception):
    """Root of this room's errors; the message says what to do next."""


class JobError(TrainingError, ValueError):
    """The job directory is incomplete or damaged."""


class NotTrainable(TrainingError, ValueError):
    """The ratings cannot teach anything as they are: one-sided, or too few."""


class Diverged(TrainingError, ArithmeticError):
    """The loss became NaN or infinite, or the policy left its limits."""


class MissingDependency(TrainingError, ImportError):
    """Neither extra, "train" or "mlx", is installed."""

    @classmethod
    def because(cls, error: ImportError) -> MissingDependency:
        """Say how to install what an import did not find."""
        return cls(
            f"training needs more packages ({error}); run: {how_to_install('train')} (on Apple's processors the extra "
            "mlx does as well)"
        )
