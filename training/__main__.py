"""``python -m burnish.training STEP DIR``: one step of a job (train, evaluate, prove, reward) in a process of its own.

Exit codes: 0 done; 1 a fault of ours (traceback on stderr); 2 a reason that we know; 3 the process that started it
is gone. With 1 and 2 the directory holds error.json.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import re
import sys
import traceback
import warnings
from pathlib import Path

from burnish.system import durable
from burnish.system.parent import end_with_parent
from burnish.training.errors import TrainingError
from burnish.training.job import JobDirectory
from burnish.training.rewards.job import read_reward_job

FAULT, KNOWN_FAULT, ORPHANED = 1, 2, 3
# Gives way to the server without starving: at 19 a busy two-core machine never finished a run.
NICENESS = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m burnish.training")
    parser.add_argument("step", choices=("train", "evaluate", "prove", "reward"))
    parser.add_argument("directory", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    os.umask(0o077)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads what a library prints there
    # An orphan never trains on. There is no other way out of a running step from another thread.
    end_with_parent(lambda: os._exit(ORPHANED))
    job = JobDirectory(arguments.directory)
    try:
        _run(arguments.step, job)
    except TrainingError as error:
        return _fail(job, type(error).__name__, str(error), KNOWN_FAULT)
    except Exception as error:  # noqa: BLE001 - whatever it was, the proxy must find a reason in error.json
        if message := _shortage(error):
            return _fail(job, type(error).__name__, message, KNOWN_FAULT)
        traceback.print_exc()
        return _fail(job, type(error).__name__, str(error), FAULT)
    return 0


def _run(step: str, job: JobDirectory) -> None:
    (job.path / "error.json").unlink(missing_ok=True)
    _give_way((read_reward_job(job.path)[0] if step == "reward" else job.spec()).threads)
    if step == "reward":
        from burnish.training.rewards.learning import learn_reward_model

        learn_reward_model(job.path)
    elif step == "train":
        from burnish.training.loop import train

        train(job)
    elif step == "prove":
        from burnish.training.loop import prove

        prove(job)
    else:
        from burnish.training.evaluate import evaluate

        evaluate(job)


def _give_way(threads: int) -> None:
    """Set priority and threads; OpenMP reads its variables once, when torch is imported."""
    os.nice(max(0, NICENESS - os.nice(0)))
    os.environ |= {
        # Threads that spin while they wait cost a busy two-core machine a factor of thirty.
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    # peft and transformers deprecate each other's names; nothing that the reader of our log can do.
    warnings.simplefilter("ignore", FutureWarning)


def _shortage(error: Exception) -> str | None:
    """Say in words that memory or disk ran out, if that is what it was."""
    # torch raises a RuntimeError: "… can't allocate memory …" on the CPU, "CUDA out of memory …" on a GPU; so does
    # MLX: "Attempting to allocate … bytes which is greater than …", "Unable to allocate … bytes".
    if isinstance(error, MemoryError) or re.search(
        "allocate memory|out of memory|to allocate [0-9]+ bytes", str(error)
    ):
        return f"not enough memory: lower micro_batch_tokens or max_tokens, or use a smaller model ({error})"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: make room and train again ({error})"
    return None


def _fail(job: JobDirectory, name: str, message: str, code: int) -> int:
    try:
        durable.replace(job.path / "error.json", json.dumps({"error": name, "message": message}) + "\n")
    except OSError as error:
        message = f"{message} (and error.json could not be written: {error})"
    sys.stderr.write(f"{name}: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
