"""A run's progress on disk, so that a killed run resumes. Knows no framework.

::

    checkpoint/tries-<seed>     replies that the stage under way has sampled so far
    checkpoint/lessons.json     what the stage under way learns: to score and to sample it takes its time
    checkpoint/state-<step>     the backend's: adapter and optimiser
    checkpoint/progress.json    names the state that counts; written last and atomically

The order of the batches follows from the seed, and nothing else in a step is random.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from burnish.system import durable
from burnish.training.backends.base import Lesson, Sampled, TrainerBackend, Tries
from burnish.training.dataset import LeftOut
from burnish.training.errors import JobError
from burnish.training.job import JobDirectory

logger = logging.getLogger(__name__)

LESSONS, PROGRESS = "lessons.json", "progress.json"
# Some 60 MB with the small model, most of it the optimiser's: a second's work on a slow disk.
INTERVAL_S = 30.0


class _Lessons(BaseModel):
    model_config = ConfigDict(frozen=True)

    inputs: str
    lessons: tuple[Lesson, ...]
    left_out: dict[str, int]
    unlearnt: dict[str, str]
    notes: tuple[str, ...] = ()
    stage: int
    earlier: tuple[int, int]
    """Good and bad replies of the stages before."""


class _Progress(BaseModel):
    model_config = ConfigDict(frozen=True)

    inputs: str
    state: str
    steps: tuple[dict[str, float], ...]


class _Tries(BaseModel):
    model_config = ConfigDict(frozen=True)

    inputs: str
    drawn: dict[int, Sampled]


_State = TypeVar("_State", _Lessons, _Progress, _Tries)


class Checkpoint:
    """That of one job. A checkpoint of other inputs, or a damaged one, is ignored."""

    def __init__(self, job: JobDirectory) -> None:
        self._path = job.checkpoint
        self.inputs = job.inputs()
        self._saved_at = time.monotonic()

    def tries(self, seed: int) -> Tries:
        return _KeptTries(self, f"tries-{seed}")

    def place(self) -> tuple[int, tuple[int, int]]:
        """Return the stage that was under way, and how many good and bad replies the stages before it had."""
        record = self.read(LESSONS, _Lessons)
        return (record.stage, record.earlier) if record else (0, (0, 0))

    def lessons(self, left_out: LeftOut, stage: int = 0) -> list[Lesson] | None:
        """Return the lessons of a stage, if they are kept; ``left_out`` is then as it was."""
        record = self.read(LESSONS, _Lessons)
        if record is None or record.stage != stage:
            return None
        left_out.counts, left_out.answers = Counter(record.left_out), record.unlearnt
        left_out.notes = list(record.notes)
        return list(record.lessons)

    def keep(
        self,
        lessons: Sequence[Lesson],
        left_out: LeftOut,
        stage: int = 0,
        earlier: tuple[int, int] = (0, 0),
    ) -> None:
        """Write down what a stage learns. With the first stage whatever was there goes; later ones need its state."""
        if stage == 0:
            self.clear()
        record = _Lessons(
            inputs=self.inputs,
            lessons=tuple(lessons),
            left_out=dict(left_out.counts),
            unlearnt=left_out.answers,
            notes=tuple(left_out.notes),
            stage=stage,
            earlier=earlier,
        )
        self.write(LESSONS, record)

    def restore(self, backend: TrainerBackend) -> list[dict[str, float]]:
        """Put the backend where the earlier try stood; return the metrics of the steps that it has made."""
        progress = self.read(PROGRESS, _Progress)
        if progress is None or self.read(LESSONS, _Lessons) is None:
            return []
        try:
            backend.restore(self._path / progress.state)
        except JobError as error:
            logger.warning("the checkpoint can't be used, so the run starts again: %s", error)
            return []
        return list(progress.steps)

    def due(self) -> bool:
        return time.monotonic() - self._saved_at > INTERVAL_S

    def save(self, backend: TrainerBackend, steps: Sequence[dict[str, float]]) -> None:
        state = self._path / f"state-{len(steps)}"
        backend.checkpoint(state)
        state.chmod(0o600)
        durable.sync(state)
        self.write(PROGRESS, _Progress(inputs=self.inputs, state=state.name, steps=tuple(steps)))
        for older in self._path.glob("state-*"):
            if older != state:
                older.unlink()
        self._saved_at = time.monotonic()

    def clear(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    def write(self, name: str, record: BaseModel) -> None:
        self._path.mkdir(mode=0o700, exist_ok=True)
        durable.replace(self._path / name, record.model_dump_json())

    def read(self, name: str, kind: type[_State]) -> _State | None:
        try:
            record = kind.model_validate_json((self._path / name).read_bytes())
        except (OSError, ValidationError):
            return None
        return record if record.inputs == self.inputs else None


@dataclass(frozen=True, slots=True)
class _KeptTries:
    checkpoint: Checkpoint
    name: str

    def drawn(self) -> dict[int, Sampled]:
        record = self.checkpoint.read(self.name, _Tries)
        return dict(record.drawn) if record else {}

    def keep(self, drawn: dict[int, Sampled]) -> None:
        self.checkpoint.write(self.name, _Tries(inputs=self.checkpoint.inputs, drawn=drawn))
