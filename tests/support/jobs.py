"""Job directories about the preference "short answers, please"."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from burnish.training.backends.base import TrainerBackend
from burnish.training.dataset import LeftOut, Run
from burnish.training.job import Hyperparameters, JobDirectory, JobSpec, Sample

SYSTEM = "Answer in one short sentence"
SHORT = "{} is what most people have heard of at school."
LONG = (
    "{} is a wide subject, and it is worth our while to look at it from several sides. First of all there is its "
    "history, which goes back to the earliest of times; then there is the question of how it is used today."
)
TOPICS = (
    "Rain", "Bread", "The moon", "A violin", "Snow", "Paper", "Salt", "A bicycle", "Tea", "The sun", "A river", "Glass",
    "Honey", "Wood", "A clock", "Sand",
)  # fmt: skip


def context(topic: str) -> tuple[dict[str, Any], ...]:
    return ({"role": "system", "content": SYSTEM}, {"role": "user", "content": f"What is {topic.lower()}?"})


def sample(
    number: int, *, good: bool, held_out: bool = False, version: int | None = 0, **changes: Any
) -> Sample:
    topic = TOPICS[number % len(TOPICS)]
    fields: dict[str, Any] = {
        "completion_id": f"cmpl_{number}",
        "conversation_id": f"conv_{number}",
        "feedback_ids": (f"fb_{number}",),
        "messages": context(topic),
        "reply": {"role": "assistant", "content": (SHORT if good else LONG).format(topic)},
        "finished": True,
        "reward": 1.0 if good else -1.0,
        "behaviour_version": version,
        "held_out": held_out,
    }
    return Sample(**fields | changes)


def brief_samples(training: int, held_out: int) -> list[Sample]:
    """Alternately good (short) and bad (long); each topic is in one of the two parts only."""
    return [sample(n, good=n % 2 == 0, held_out=n >= training) for n in range(training + held_out)]


class Base(NamedTuple):
    """A base model that jobs can train on: what ``prepared_weights`` takes."""

    gguf: Path
    digest: str
    weights_cache: Path


NO_BASE = Base(Path("unused"), "sha256:0", Path("unused"))


def job_spec(base: Base = NO_BASE, **changes: Any) -> JobSpec:
    fields: dict[str, Any] = {
        "run_id": "run_test",
        "base_model": "smollm2",
        "base_weights": str(base.gguf),
        "base_digest": base.digest,
        "weights_cache": str(base.weights_cache),
        "hyperparameters": Hyperparameters(epochs=1, batch_size=4),
    }
    return JobSpec(**fields | changes)


def run_of(backend: TrainerBackend, left_out: LeftOut | None = None, **changes: Any) -> Run:
    """Return a run whose lessons are made without a job directory."""
    return Run(JobDirectory(Path("unused")), job_spec(**changes), backend, left_out or LeftOut())


def write_job(path: Path, base: Base, samples: list[Sample], **changes: Any) -> JobDirectory:
    job = JobDirectory(path)
    job.write_job(job_spec(base, **changes), samples)
    return job
