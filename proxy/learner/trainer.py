"""Runs a step of a job in a child process, which ends with this process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any, Literal

from burnish.training.errors import TrainingError
from burnish.training.job import JobDirectory

LOG = "log.txt"
# The part of the child's output that goes into an error.
LOG_TAIL_BYTES = 2000
LOG_TAIL_LINES = 3


async def run_step(step: Literal["train", "evaluate", "reward"], job: JobDirectory) -> None:
    """Run ``python -m burnish.training STEP DIR`` to its end; its output goes to ``log.txt`` of the job.

    The child lowers its own priority, and ends when its stdin closes. Raises TrainingError with the reason, OSError if
    the child can't be started. After an error, or if the caller is cancelled, no process is left.
    """
    descriptor = os.open(job.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "burnish.training", step, str(job.path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=descriptor,
            stderr=descriptor,
            cwd=job.path,  # no module in the working directory of burnish may be imported
        )
    finally:
        os.close(descriptor)
    try:
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()  # the next run continues from its checkpoint
            await process.wait()
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
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        hint = ", most likely because memory ran out" if -status == signal.SIGKILL else ""
        return f"the trainer was ended by {name} during {step}{hint}; the ratings are kept for the next run"
    try:
        return str(json.loads((job.path / "error.json").read_bytes())["message"])
    except (OSError, ValueError, LookupError, TypeError):
        return f"the trainer ended with status {status} during {step}; {_tail(job)}"


def _tail(job: JobDirectory) -> str:
    path = job.path / LOG
    try:
        lines = path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    except OSError:
        lines = []
    return f"{path} ends with: {' | '.join(lines)}" if lines else f"{path} is empty"
