"""Statistics go here, if anywhere: TensorBoard, Weights & Biases, Trackio, or something of your own.

Nothing is sent anywhere unless a tracker is named. W&B uploads unless WANDB_MODE=offline; the other two write files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from burnish.agents.errors import MissingPackage


class Tracker(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep some figures. ``step`` counts calls."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PackageTracker:
    """One of the packages below."""

    write: Callable[[dict[str, float], int], object]
    """Takes figures and their step."""
    end: Callable[[], object]

    def log(self, step: int, values: Mapping[str, float]) -> None:
        # What can't be drawn is left out, such as the interval of one episode.
        self.write({name: number for name, number in values.items() if math.isfinite(number)}, step)

    def close(self) -> None:
        self.end()


def tensorboard(task: str) -> Tracker:
    """Write event files to ``runs/<task>``: ``tensorboard --logdir runs`` shows them."""
    writer = _package("tensorboard.summary", "tensorboard").Writer(f"runs/{task}")

    def write(values: dict[str, float], step: int) -> None:
        for name, number in values.items():
            writer.add_scalar(name, number, step)

    return PackageTracker(write, writer.close)


def wandb(task: str) -> Tracker:
    """Log to a run of Weights & Biases in a project named after the task."""
    run = _package("wandb", "wandb").init(project=task)
    return PackageTracker(lambda values, step: run.log(values, step=step), run.finish)


def trackio(task: str) -> Tracker:
    """Log to a run of Trackio in a project named after the task, kept on this machine: ``trackio show``."""
    package = _package("trackio", "trackio")
    package.init(project=task)
    return PackageTracker(lambda values, step: package.log(values, step=step), package.finish)


TRACKERS: Mapping[str, Callable[[str], Tracker]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "trackio": trackio,
}


def tracker_named(tracker: str | Tracker | None, task: str) -> Tracker | None:
    """Return the tracker that was asked for. Raises MissingPackage, ValueError."""
    if not isinstance(tracker, str):
        return tracker
    if tracker not in TRACKERS:
        raise ValueError(
            f"tracker must be {', '.join(TRACKERS)}, or an object with log and close, not {tracker!r}"
        )
    return TRACKERS[tracker](task)


def _package(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackage(extra, extra, "the tracker") from error
