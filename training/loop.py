"""The training loop: a job directory in, an adapter and its metrics out. Knows no framework."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import TextIO

from burnish.adapters import durable
from burnish.training.backends.base import Lesson, TrainerBackend
from burnish.training.checkpoint import Checkpoint
from burnish.training.dataset import LeftOut, batches
from burnish.training.device import framework_here
from burnish.training.errors import JobError, MissingDependency, NotTrainable
from burnish.training.job import OBJECTIVES, Hyperparameters, JobDirectory, JobSpec, Sample, TrainResult
from burnish.training.lessons import check_teachable, lessons, rehearsal
from burnish.training.objectives import loss_named
from burnish.training.objectives.losses import kl_point
from burnish.training.phases import Phases
from burnish.training.weights import prepared_weights

PLACE = ("step", "steps", "epoch", "epochs", "seconds")
"""The keys of a line of metrics that locate the step."""


def train(job: JobDirectory) -> TrainResult:
    """Run a job: train on the samples that are not held out, write ``adapter/``, then ``result.json``.

    A killed job can be run again: it resumes from its latest checkpoint, with the same result. Raises JobError (a file
    is damaged or missing), NotTrainable (these ratings can't teach anything), Diverged (the loss was not finite, and no
    ``adapter/`` exists), MissingDependency.
    """
    started = time.monotonic()
    spec, samples = job.spec(), job.samples()
    config, phases = spec.hyperparameters, Phases(job.phases)
    clear_outputs(job, "adapter", "result.json", "metrics.jsonl")
    checkpoint, left_out = Checkpoint(job), LeftOut(Counter(spec.left_out))
    chosen = [sample for sample in samples if not sample.held_out]
    check_teachable(spec.objective, chosen, config)  # before anything is loaded
    if spec.objective not in OBJECTIVES:
        loss_named(spec.objective)
    backend = open_backend(job, spec, spec.parent_adapter)
    phases.begin("preparing")
    backend.watch = phases.over
    learnt = checkpoint.lessons(left_out)
    if learnt is None:
        learnt = _lessons(job, spec, chosen, backend, left_out)
        checkpoint.keep(learnt, left_out)
    plan = _plan(learnt, rehearsal(backend, config.max_tokens) if config.rehearsed else [], spec)
    with job.metrics.open("w", encoding="utf-8") as file:
        steps, stopped = _epochs(backend, plan, config, checkpoint, metrics=file, phases=phases)
    _save(backend, job, spec.base_model)
    result = TrainResult(
        run_id=spec.run_id,
        samples=sum(len(lesson.replies) for lesson in learnt),
        good=sum(reply.good for lesson in learnt for reply in lesson.replies),
        bad=sum(not reply.good for lesson in learnt for reply in lesson.replies),
        ratings=len(chosen),
        replayed=sum(sample.replayed for sample in chosen),
        left_out=dict(left_out.counts),
        unlearnt=left_out.answers,
        steps=len(steps),
        stopped_early=stopped,
        metrics={name: value for name, value in steps[-1].items() if name not in PLACE} if steps else {},
        seconds=time.monotonic() - started,
        cpu_seconds=time.process_time(),
        peak_rss_bytes=peak_rss_bytes(),
    )
    job.finish(result)
    checkpoint.clear()
    return result


def open_backend(job: JobDirectory, spec: JobSpec, parent: str | None) -> TrainerBackend:
    """Load the base model, with an adapter to start from or a fresh one."""
    weights = prepared_weights(job.path / spec.base_weights, spec.base_digest, job.path / spec.weights_cache)
    start = job.path / parent if parent else None
    if framework_here(spec.device, spec.quantize) == "mlx":
        return _mlx_backend(weights, start, spec)
    try:
        from burnish.training.backends.torch_peft import TorchPeftBackend
    except ImportError as missing:
        raise MissingDependency.because(missing) from missing
    return TorchPeftBackend(
        weights, start, spec.hyperparameters, spec.seed, device=spec.device, quantize=spec.quantize
    )


def _mlx_backend(weights: Path, start: Path | None, spec: JobSpec) -> TrainerBackend:
    """Raises MissingDependency, JobError."""
    try:
        from burnish.training.backends.mlx_lora import MlxLoraBackend
    except ImportError as missing:
        raise MissingDependency.because(missing) from missing
    if spec.device != "auto" or spec.quantize != "none":
        raise JobError(
            f"MLX picks its device and trains unquantised: train.device is {spec.device!r} and train.quantize "
            f"{spec.quantize!r}; leave both unset, or install torch"
        )
    return MlxLoraBackend(weights, start, spec.hyperparameters, spec.seed)


def clear_outputs(job: JobDirectory, *names: str) -> None:
    for name in names:
        path = job.path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def peak_rss_bytes() -> int:
    try:
        # On Linux, ru_maxrss of a new program begins with what its parent held when it started it.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, LookupError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _lessons(
    job: JobDirectory,
    spec: JobSpec,
    chosen: Sequence[Sample],
    backend: TrainerBackend,
    left_out: LeftOut,
) -> list[Lesson]:
    try:
        return lessons(job, spec, chosen, backend, left_out)
    except NotTrainable as error:
        missing = "; ".join(f"{count} × {why}" for why, count in left_out.counts.items())
        raise NotTrainable(f"{error} (left out: {missing})" if missing else str(error)) from error


def _epochs(
    backend: TrainerBackend,
    plan: Sequence[tuple[int, Sequence[Lesson]]],
    config: Hyperparameters,
    checkpoint: Checkpoint,
    *,
    metrics: TextIO,
    phases: Phases,
) -> tuple[list[dict[str, float]], str | None]:
    """Make all steps that are left; return the metrics of each step, and why it stopped early if it did."""
    made = checkpoint.restore(backend)
    metrics.writelines(json.dumps(line) + "\n" for line in made)
    metrics.flush()
    phases.begin("training", len(plan), len(made))
    # One batch's estimate is noisy: the mean over an epoch's worth of steps decides.
    recent = deque(made, maxlen=max(1, len(plan) // config.epochs))
    for step, (epoch, batch) in enumerate(plan[len(made) :], start=len(made) + 1):
        started = time.monotonic()
        found = backend.step(batch, config, kl_point(recent))
        line = {"step": step, "steps": len(plan), "epoch": epoch + 1, "epochs": config.epochs, **found}
        line["seconds"] = time.monotonic() - started
        metrics.write(json.dumps(line) + "\n")
        metrics.flush()
        phases.advance()
        made.append(line)
        recent.append(line)
        if step == len(plan):
            break
        kl = fmean(each["kl_per_token"] for each in recent)
        if len(recent) == recent.maxlen and kl > config.kl_stop:
            return made, f"KL per token reached {kl:.2f}, kl_stop is {config.kl_stop:.2f}"
        if plan[step][0] != epoch or checkpoint.due():
            checkpoint.save(backend, made)
    return made, None


def _plan(
    learnt: Sequence[Lesson], rehearsed: Sequence[Lesson], spec: JobSpec
) -> list[tuple[int, list[Lesson]]]:
    """Return the batch of each step, and its epoch."""
    config = spec.hyperparameters
    rated = [
        (epoch, batch)
        for epoch in range(config.epochs)
        for batch in batches(learnt, config.batch_size, seed=spec.seed * config.epochs + epoch)
    ]
    turn = cycle(rehearsed)
    return [(epoch, [*batch, *islice(turn, config.rehearsed)]) for epoch, batch in rated]


def _save(backend: TrainerBackend, job: JobDirectory, base_model: str) -> None:
    partial = job.path / ".adapter.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    backend.save(partial, base_model)
    for path in partial.iterdir():
        path.chmod(0o600)
        durable.sync(path)
    partial.rename(job.adapter)
    durable.sync(job.path)
