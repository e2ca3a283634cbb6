"""What a run that burnish's end stopped needs to go on: a file of its job directory, from its start to its end."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from burnish.learner import sampling
from burnish.learner.plan import RunOptions
from burnish.learner.progress import ORDER
from burnish.proxy.log.runs import Run
from burnish.proxy.records import answer_named
from burnish.system import durable
from burnish.training.errors import JobError
from burnish.training.job import JobDirectory
from burnish.training.phases import read

FILE = "resume.json"
# What ends burnish three times in the same run may be the run itself, such as its memory.
MAX_CRASHES = 3


class Resumption(BaseModel):
    """``resume.json``."""

    model_config = ConfigDict(frozen=True)

    options: RunOptions
    by_user: bool
    """A person asked for the run."""
    reason: str
    """Why it started."""
    crashes: int = 0
    """How often burnish ended during the run without being asked to."""

    def keep(self, job: Path) -> None:
        """Raises OSError."""
        job.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(job / FILE, self.model_dump_json())


@dataclass(frozen=True, slots=True)
class StoppedRun:
    run: Run
    kept: Resumption

    @property
    def words(self) -> str:
        """How far it came."""
        return self.run.reason.partition(";")[0]


def resumption(job: Path) -> Resumption | None:
    """Return what is kept of a run; None if it has ended, or if the file is damaged."""
    try:
        return Resumption.model_validate_json((job / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def settled(job: Path) -> None:
    """The run has ended, and won't go on."""
    with suppress(OSError):
        (job / FILE).unlink(missing_ok=True)


def erase(job: Path) -> None:
    """Delete a job directory; of a run that goes on, all but the wish for it. Raises OSError."""
    for path in job.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != FILE:
            path.unlink()
    if not (job / FILE).exists():
        job.rmdir()


def quoted(job: JobDirectory) -> tuple[set[str], set[str]]:
    """Return the completions whose texts a job learns from, and those whose prompts the gate asked again."""
    lesson_ids, prompt_ids = set[str](), set[str]()
    with suppress(JobError):
        lesson_ids |= {answer_named(sample.completion_id)[0] for sample in job.samples()}
        lesson_ids |= {prompt.completion_id for prompt in job.unrated()}
        lesson_ids |= {step.completion_id for episode in job.episodes() for step in episode.steps}
    with suppress(JobError):  # none before the gate
        prompt_ids |= {reply.prompt_id for reply in job.replies() if not sampling.is_ours(reply.prompt_id)}
    return lesson_ids, prompt_ids


def place(phases: Path) -> str:
    """Return how far a run came, in words."""
    marks = [mark for mark in read(phases) if mark.phase in ORDER]
    if not marks:
        return "before its first step"
    last = max(marks, key=lambda mark: (ORDER.index(mark.phase), mark.at))
    if last.phase == "training":
        return f"at step {last.done} of {last.total}"
    counter = "" if last.total is None else f", {last.done} of {last.total}"
    return f"while {last.phase}{counter}"
