"""Statistics go here, if anywhere: TensorBoard, Weights & Biases, Trackio, or something of your own.

Nothing is sent anywhere unless a tracker is named. W&B uploads unless WANDB_MODE=offline; the other two write files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from burnish.agents.errors import MissingPackage


class Tracker(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep some figures. ``step`` counts calls."""

    def close(self) -> None: ...


class TensorBoard:
    """Writes event files to ``runs/<task>``: ``tensorboard --logdir runs`` shows them."""

    def __init__(self, task: str) -> None:
        self._writer = _package("tensorboard.summary", "tensorboard").Writer(f"runs/{task}")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, number in finite(values).items():
            self._writer.add_scalar(name, number, step)

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases in a project named after the task."""

    def __init__(self, task: str) -> None:
        self._run = _package("wandb", "wandb").init(project=task)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(finite(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """A run of Trackio in a project named after the task, kept on this machine: ``trackio show``."""

    def __init__(self, task: str) -> None:
        self._trackio = _package("trackio", "trackio")
        self._trackio.init(project=task)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._trackio.log(finite(values), step=step)

    def close(self) -> None:
        self._trackio.finish()


TRACKERS: Mapping[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
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


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Leave out what can't be drawn, such as the interval of one episode."""
    return {name: number for name, number in values.items() if math.isfinite(number)}


def _package(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackage(extra, extra, "the tracker") from error
