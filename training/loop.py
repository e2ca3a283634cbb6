"""The training loop: a job directory in, an adapter and its metrics out. Knows no framework."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import TextIO

from burnish.config.hyperparameters import OBJECTIVES, WITH_COMMENTS
from burnish.gate.questions import QUESTIONS
from burnish.system import durable
from burnish.training.anchors import facts
from burnish.training.backends.base import Lesson, TrainerBackend
from burnish.training.checkpoint import Checkpoint
from burnish.training.comments import left_to_trainer
from burnish.training.compared import DIFFERENT, compared
from burnish.training.dataset import LeftOut, Run, batches
from burnish.training.device import framework_here
from burnish.training.episodes import mean_reward
from burnish.training.errors import JobError, MissingDependency, NotTrainable
from burnish.training.job import (
    Episode,
    Hyperparameters,
    JobDirectory,
    JobSpec,
    Proof,
    Sample,
    TrainResult,
)
from burnish.training.objectives import kl_point, loss_named
from burnish.training.phases import Phases
from burnish.training.proof import REPLY_TOKENS, SEARCHED, proof_of
from burnish.training.rendering import Rendered, Renderer
from burnish.training.stages import SEEDS_A_STAGE, Course, Stage, course
from burnish.training.weights import prepared_weights

PLACE = ("step", "steps", "stage", "epoch", "epochs", "seconds")
"""The keys of a line of metrics that locate the step."""


def train(job: JobDirectory) -> TrainResult:
    """Run a job: train on the samples that are not held out, write ``adapter/``, then ``result.json``.

    A killed job can be run again: it resumes from its latest checkpoint, with the same result. Raises JobError (a file
    is damaged or missing), NotTrainable (these ratings can't teach anything), Diverged (the loss was not finite, and no
    ``adapter/`` exists), MissingDependency.
    """
    started = time.monotonic()
    spec, samples = job.spec(), job.samples()
    phases = Phases(job.phases)
    clear_outputs(job, "adapter", "result.json", "metrics.jsonl")
    checkpoint, left_out = Checkpoint(job), LeftOut(Counter(spec.left_out))
    training_samples = [sample for sample in samples if not sample.held_out]
    episodes = job.episodes()
    stages = course(spec, training_samples, episodes)  # before anything is loaded
    if spec.objective not in OBJECTIVES:
        loss_named(spec.objective)
    backend = open_backend(job, spec, spec.parent_adapter)
    backend.watch = phases.over
    if unread := _read_otherwise(job, samples, episodes, backend.renderer):
        read = [sample for sample in training_samples if sample.completion_id not in unread]
        for sample in training_samples:
            if sample.completion_id in unread:
                left_out.add(DIFFERENT, sample.completion_id)
        with _with_reasons(left_out):
            stages = course(spec, read, episodes)
    with job.metrics.open("w", encoding="utf-8") as file:
        run = Run(job, spec, backend, left_out, unread, checkpoint.tries)
        progress = _Progress(run, checkpoint, file, phases)
        stopped = progress.through(stages)
    _save(backend, job, spec.base_model)
    proof = proof_of(backend, progress.taught, "trained")
    steps, (good, bad) = progress.steps, progress.counts
    report = TrainResult(
        run_id=spec.run_id,
        samples=good + bad,
        good=good,
        bad=bad,
        ratings=len(training_samples),
        replayed=sum(sample.replayed for sample in training_samples),
        left_out=dict(left_out.counts),
        unlearnt=left_out.answers,
        steps=len(steps),
        rewards=stages.rewards,
        notes=(*_notes(job, spec, training_samples), *left_out.notes),
        episodes=len(episodes),
        reward=mean_reward(episodes),
        stopped_early=stopped,
        metrics={name: metric for name, metric in steps[-1].items() if name not in PLACE} if steps else {},
        seconds=time.monotonic() - started,
        cpu_seconds=time.process_time(),
        peak_rss_bytes=peak_rss_bytes(),
        proof=proof,
    )
    job.finish(report)
    checkpoint.clear()
    return report


def _notes(job: JobDirectory, spec: JobSpec, samples: Sequence[Sample]) -> Iterator[str]:
    if spec.objective in WITH_COMMENTS and (note := left_to_trainer(job, samples, spec.seed)):
        yield note


def _read_otherwise(
    job: JobDirectory, samples: Sequence[Sample], episodes: Sequence[Episode], renderer: Renderer
) -> frozenset[str]:
    """Write down how many prompts are those that the engine read; return the answers whose prompts are others."""
    steps = [step for episode in episodes for step in episode.steps]
    outcome = compared([*samples, *steps], renderer)
    durable.replace(job.prompts, outcome.record().model_dump_json())
    return frozenset(outcome.different)


@contextmanager
def _with_reasons(left_out: LeftOut) -> Iterator[None]:
    """Say what was left out if nothing is left that can teach."""
    try:
        yield
    except NotTrainable as error:
        missing = "; ".join(f"{count} × {why}" for why, count in left_out.counts.items())
        raise NotTrainable(f"{error} (left out: {missing})" if missing else str(error)) from error


def prove(job: JobDirectory) -> None:
    """Write the proof of the job's parent, a version that has none, by ordinary questions. Raises as ``train`` does."""
    spec = job.spec()
    backend = open_backend(job, spec, spec.parent_adapter)
    questions = [[{"role": "user", "content": question}] for question in QUESTIONS[:SEARCHED]]
    prompts = [tuple(backend.renderer.prompt(messages)) for messages in questions]
    answers = backend.sample(prompts, "trained", [REPLY_TOKENS] * len(prompts), spec.seed, greedy=True)
    replies = [Rendered(prompt, answer.ids) for prompt, answer in zip(prompts, answers, strict=True)]
    job.finish(Proof(proof=proof_of(backend, replies, "trained")))


def open_backend(job: JobDirectory, spec: JobSpec, parent: str | None) -> TrainerBackend:
    """Load the base model, with an adapter to start from or a fresh one. Raises MissingDependency, JobError."""
    weights = prepared_weights(job.path / spec.base_weights, spec.base_digest, job.path / spec.weights_cache)
    start, config = job.path / parent if parent else None, spec.hyperparameters
    mlx = framework_here(spec.device, spec.quantize) == "mlx"
    try:
        if mlx:
            from burnish.training.backends.mlx_lora import MlxLoraBackend
        else:
            from burnish.training.backends.torch_peft import TorchPeftBackend
    except ImportError as missing:
        raise MissingDependency.because(missing) from missing
    if not mlx:
        return TorchPeftBackend(weights, start, config, spec.seed, device=spec.device, quantize=spec.quantize)
    if spec.device != "auto" or spec.quantize != "none":
        raise JobError(
            f"MLX picks its device and trains unquantised: train.device is {spec.device!r} and train.quantize "
            f"{spec.quantize!r}; leave both unset, or install torch"
        )
    return MlxLoraBackend(weights, start, config, spec.seed)


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


@dataclass(slots=True)
class _Progress:
    """The steps of a run, one stage after the other."""

    run: Run
    checkpoint: Checkpoint
    metrics: TextIO
    phases: Phases
    steps: list[dict[str, float]] = field(default_factory=list)
    counts: tuple[int, int] = (0, 0)
    """Good and bad replies that were learnt from."""
    taught: list[Rendered] = field(default_factory=list)
    """The replies that were learnt from, with their contexts."""

    def through(self, course: Course) -> str | None:
        """Go through the stages that are left; return why the run stopped early if it did."""
        stopped = None
        self.phases.begin("preparing")
        backend, config = self.run.backend, self.run.spec.hyperparameters
        # Plain facts would hold back what most comments want: that all answers change.
        holds_facts = config.rehearsed and self.run.spec.objective != "critique"
        plain = facts(backend, config.max_tokens) if holds_facts else []
        self.steps = self.checkpoint.restore(backend)
        self.metrics.writelines(json.dumps(line) + "\n" for line in self.steps)
        first, self.counts = self.checkpoint.place() if self.steps else (0, (0, 0))
        for number, stage in enumerate(course.stages[first:], start=first):
            lessons, anchors = self._lessons(number, stage)
            seed = self.run.spec.seed + SEEDS_A_STAGE * number
            self.taught += [reply.tokens for lesson in lessons for reply in lesson.replies]
            plan = _plan(lessons, anchors + plain, config, stage.epochs, seed)
            stopped = self._stage(number, stage, plan)
            if stopped and stage.ends_run:
                break
            if number + 1 < len(course.stages):
                self.checkpoint.save(self.run.backend, self.steps)
        for taught in course.imitated:
            self.run.left_out.answers.pop(taught, None)
        return stopped

    def _lessons(self, number: int, stage: Stage) -> tuple[list[Lesson], list[Lesson]]:
        """Return what a stage learns, and what of it stays. Raises NotTrainable."""
        lessons = self.checkpoint.lessons(self.run.left_out, number)
        if lessons is None:
            self.phases.begin("preparing")
            with _with_reasons(self.run.left_out):
                lessons = stage.learn(self.run)
            self.checkpoint.keep(lessons, self.run.left_out, number, self.counts)
        taught = [lesson for lesson in lessons if not lesson.rehearsed]
        good = sum(reply.good for lesson in taught for reply in lesson.replies)
        bad = sum(len(lesson.replies) for lesson in taught) - good
        self.counts = self.counts[0] + good, self.counts[1] + bad
        return taught, [lesson for lesson in lessons if lesson.rehearsed]

    def _stage(self, number: int, stage: Stage, plan: Sequence[tuple[int, Sequence[Lesson]]]) -> str | None:
        """Make the steps of a stage that are left; return why it stopped early if it did."""
        own = [line for line in self.steps if line["stage"] == number]
        start, offset = len(own), len(self.steps) - len(own)
        self.metrics.flush()
        self.phases.begin("training", len(plan), start)
        # One batch's estimate is noisy: the mean over an epoch's worth of steps decides.
        recent = deque(own, maxlen=max(1, len(plan) // stage.epochs))
        for place, (epoch, batch) in enumerate(plan[start:], start=start):
            if (kl := _distance(recent)) > stage.kl_stop:
                return f"KL per token reached {kl:.2f}, kl_stop is {stage.kl_stop:.2f}"
            if place > start and (plan[place - 1][0] != epoch or self.checkpoint.due()):
                self.checkpoint.save(self.run.backend, self.steps)
            line: dict[str, float] = {
                **{"step": offset + place + 1, "steps": offset + len(plan), "stage": number},
                **{"epoch": epoch + 1, "epochs": stage.epochs},
            }
            started = time.monotonic()
            line |= self.run.backend.step(batch, self.run.spec.hyperparameters, kl_point(recent))
            if rewards := [lesson.reward for lesson in batch if lesson.reward is not None]:
                line["reward"] = fmean(rewards)
            line["seconds"] = time.monotonic() - started
            self.metrics.write(json.dumps(line) + "\n")
            self.metrics.flush()
            self.phases.advance()
            self.steps.append(line)
            recent.append(line)
        return None


def _distance(recent: deque[dict[str, float]]) -> float:
    """Return the mean KL per token of the latest steps; 0 before there are enough of them."""
    return fmean(step["kl_per_token"] for step in recent) if len(recent) == recent.maxlen else 0.0


def _plan(
    lessons: Sequence[Lesson], anchors: Sequence[Lesson], config: Hyperparameters, epochs: int, seed: int
) -> list[tuple[int, list[Lesson]]]:
    """Return the batch of each step of a stage, and its epoch."""
    steps = [
        (epoch, batch)
        for epoch in range(epochs)
        for batch in batches(lessons, config.batch_size, seed=seed * epochs + epoch)
    ]
    turn = cycle(anchors)
    return [(epoch, [*batch, *islice(turn, config.rehearsed)]) for epoch, batch in steps]


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
