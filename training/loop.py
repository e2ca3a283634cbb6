"""The training loop: a job directory in, an adapter and its metrics out. Knows no framework."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TextIO

from burnish.training.backends.base import Logps, Policy, Rated, TrainerBackend
from burnish.training.dataset import Example, batches, check_trainable, examples
from burnish.training.errors import JobError, MissingDependency
from burnish.training.job import Hyperparameters, JobDirectory, JobSpec, TrainResult
from burnish.training.rewards import advantages
from burnish.training.weights import prepared_weights, sync


def train(job: JobDirectory) -> TrainResult:
    """Run a job: train on the samples that are not held out, write ``adapter/``, then ``result.json``.

    A job that failed or was killed can be run again; it starts anew. Raises JobError (the directory, or what it
    names, is damaged or missing), NotTrainable (the ratings can't teach anything as they are), Diverged (the loss
    was not finite; there is no ``adapter/`` then), MissingDependency.
    """
    started = time.monotonic()
    spec, samples = job.spec(), job.samples()
    config = spec.hyperparameters
    clear_outputs(job, "adapter", "result.json", "metrics.jsonl")
    chosen = [sample for sample in samples if not sample.held_out]
    check_trainable([sample.reward for sample in chosen], config)  # before anything is loaded
    backend = open_backend(job, spec, spec.parent_adapter)
    training = examples(chosen, backend.renderer, config.max_tokens)
    check_trainable([example.sample.reward for example in training], config)
    rated = _rated(job, spec, training, backend)
    with job.metrics.open("w", encoding="utf-8") as file:
        steps, last, stopped = _epochs(backend, rated, config, spec.seed, file)
    _save(backend, job, spec.base_model)
    result = TrainResult(
        run_id=spec.run_id,
        samples=len(training),
        good=sum(example.sample.reward > 0 for example in training),
        bad=sum(example.sample.reward < 0 for example in training),
        steps=steps,
        stopped_early=stopped,
        metrics=last,
        seconds=time.monotonic() - started,
        peak_rss_bytes=peak_rss_bytes(),
    )
    job.finish(result)
    return result


def open_backend(job: JobDirectory, spec: JobSpec, parent: str | None) -> TrainerBackend:
    """Load the base model, with an adapter to start from or a fresh one."""
    weights = prepared_weights(job.path / spec.base_weights, spec.base_digest, job.path / spec.weights_cache)
    start = job.path / parent if parent else None
    try:
        from burnish.training.backends.torch_peft import TorchPeftBackend
    except ImportError as missing:
        return _mlx_backend(weights, start, spec, missing)
    return TorchPeftBackend(
        weights, start, spec.hyperparameters, spec.seed, device=spec.device, quantize=spec.quantize
    )


def _mlx_backend(weights: Path, start: Path | None, spec: JobSpec, missing: ImportError) -> TrainerBackend:
    """What trains where torch is not installed. Raises MissingDependency, JobError."""
    try:
        from burnish.training.backends.mlx_lora import MlxLoraBackend
    except ImportError:
        raise MissingDependency.because(missing) from missing
    if spec.device != "auto" or spec.quantize != "none":
        raise JobError(
            f"MLX picks its device and trains unquantised: train.device is {spec.device!r} and train.quantize "
            f"{spec.quantize!r}; leave both unset, or install torch"
        )
    return MlxLoraBackend(weights, start, spec.hyperparameters, spec.seed)


def clear_outputs(job: JobDirectory, *names: str) -> None:
    """Remove what an earlier try left, so that an output that is there is this run's."""
    for name in names:
        path = job.path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def peak_rss_bytes() -> int:
    """Return the most memory that this process has held at once."""
    try:
        # On Linux, ru_maxrss of a new program begins with what its parent held when it started it.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, LookupError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _rated(
    job: JobDirectory, spec: JobSpec, training: Sequence[Example], backend: TrainerBackend
) -> list[Rated]:
    reference = backend.logps([example.tokens for example in training], "bare")
    behaviour = _behaviour(job, spec, training, reference, backend)
    pulls = advantages(
        [example.sample.reward for example in training],
        [example.sample.weight for example in training],
        normalise=spec.hyperparameters.normalise_advantages,
    )
    return [
        Rated(example.tokens, pull, example.sample.weight, behaved, referred)
        for example, pull, behaved, referred in zip(training, pulls, behaviour, reference, strict=True)
    ]


def _behaviour(
    job: JobDirectory,
    spec: JobSpec,
    training: Sequence[Example],
    reference: Sequence[Logps],
    backend: TrainerBackend,
) -> list[Logps]:
    """Score each reply under the version that generated it.

    A reply of some other model has no behaviour policy here: the policy at the start of the run stands in, so
    that the bands bound how far training moves from it.
    """
    found = list(reference)  # right for version 0, the bare model
    for version in {example.sample.behaviour_version for example in training} - {0}:
        places = [p for p, example in enumerate(training) if example.sample.behaviour_version == version]
        policy: Policy = "trained" if version is None else _adapter_of(job, spec, version)
        scored = backend.logps([training[place].tokens for place in places], policy)
        for place, logps in zip(places, scored, strict=True):
            found[place] = logps
    return found


def _adapter_of(job: JobDirectory, spec: JobSpec, version: int) -> Path:
    path = spec.behaviour_adapters.get(version)
    if path is None:
        raise JobError(f"version {version} generated a sample, but job.json names no adapter for it")
    return job.path / path


def _epochs(
    backend: TrainerBackend, rated: Sequence[Rated], config: Hyperparameters, seed: int, metrics: TextIO
) -> tuple[int, dict[str, float], str | None]:
    """Make all steps; return how many, the last one's metrics, and why it stopped early if it did."""
    plan = [
        (epoch, batch)
        for epoch in range(config.epochs)
        for batch in batches(rated, config.batch_size, seed=seed * config.epochs + epoch)
    ]
    # One batch's estimate is noisy: the mean over an epoch's worth of steps decides.
    recent: deque[float] = deque(maxlen=max(1, len(plan) // config.epochs))
    last: dict[str, float] = {}
    for step, (epoch, batch) in enumerate(plan, start=1):
        started = time.monotonic()
        last = backend.step(batch, config)
        line = {"step": step, "steps": len(plan), "epoch": epoch + 1, "epochs": config.epochs, **last}
        metrics.write(json.dumps(line | {"seconds": time.monotonic() - started}) + "\n")
        metrics.flush()
        recent.append(last["kl_per_token"])
        if len(recent) == recent.maxlen and fmean(recent) > config.kl_stop and step < len(plan):
            reason = f"KL per token reached {fmean(recent):.2f}, kl_stop is {config.kl_stop:.2f}"
            return step, last, reason
    return len(plan), last, None


def _save(backend: TrainerBackend, job: JobDirectory, base_model: str) -> None:
    """Write adapter/ so that it is there whole or not at all."""
    partial = job.path / ".adapter.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    backend.save(partial, base_model)
    for path in partial.iterdir():
        path.chmod(0o600)
        sync(path)
    partial.rename(job.adapter)
    sync(job.path)
