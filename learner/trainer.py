"""Runs a step of a job in a child process, which ends with this process."""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

from burnish.system.child import Child
from burnish.system.child_log import meaning, tail
from burnish.training.errors import TrainingError
from burnish.training.job import JobDirectory

LOG = "log.txt"


async def run_step(step: Literal["train", "evaluate", "prove", "reward"], job: JobDirectory) -> None:
    """Run ``python -m burnish.training STEP DIR`` to its end; its output goes to ``log.txt`` of the job.

    The child lowers its own priority, and ends when its stdin closes. Raises TrainingError with the reason, OSError if
    the child can't be started. After an error, or if the caller is cancelled, no process is left.
    """
    command = (sys.executable, "-m", "burnish.training", step, str(job.path))
    child = await Child.start(command, log=job.path / LOG, cwd=job.path)
    try:
        status = await child.wait()
    finally:
        await child.end()  # the next run continues from its checkpoint
    if status:
        raise TrainingError(_reason(job, step, status))


def latest_step(job: JobDirectory) -> dict[str, Any] | None:
    """Return the latest line of ``metrics.jsonl``: step, steps, loss, …; None before the first."""
    try:
        lines = job.metrics.read_bytes().split(b"\n")[:-1]  # the last line may be incomplete
        return dict(json.loads(lines[-1])) if lines else None
    except (OSError, ValueError, TypeError):
        return None


def _reason(job: JobDirectory, step: str, status: int) -> str:
    if status < 0:
        return f"the trainer ended during {step} ({meaning(status)}); the ratings are kept for the next run"
    try:
        return str(json.loads((job.path / "error.json").read_bytes())["message"])
    except (OSError, ValueError, LookupError, TypeError):
        return f"the trainer ended during {step} ({meaning(status)}). {tail(job.path / LOG)}"
