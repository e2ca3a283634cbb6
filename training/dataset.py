"""Rated completions → token sequences, and the order in which batches see them.

No model is needed here, only its tokenizer.
"""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from burnish.training.backends.base import UNKEPT, Lesson, TrainerBackend, Tries
from burnish.training.job import JobDirectory, JobSpec, Sample
from burnish.training.rendering import Rendered, Renderer, Unrenderable
from burnish.training.teachable import unteachable

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LeftOut:
    counts: Counter[str] = field(default_factory=Counter)
    """Number of ratings, comments and pairs by reason."""
    answers: dict[str, str] = field(default_factory=dict)
    """Names of the answers from which nothing is learnt, and why."""
    notes: list[str] = field(default_factory=list)
    """What else a user should know of them, in words."""

    def add(self, why: str, answer: str | None) -> None:
        """``answer``: its name, if nothing else about it may be learnt."""
        self.counts[why] += 1
        if answer:
            self.answers[answer] = why


@dataclass(frozen=True, slots=True)
class TrainingExample:
    sample: Sample
    tokens: Rendered


def rendered(sample: Sample, renderer: Renderer, max_tokens: int) -> Rendered:
    """Return a sample as tokens. Raises Unrenderable when that can't be done, or there is nothing to learn from it."""
    if why := unteachable(sample.messages, sample.reply):
        raise Unrenderable(why)
    reply = sample.reply
    if sample.behaviour_version is None:
        # This model thought nothing before what a person, another model or another prompt came up with.
        reply = {"reasoning_content": "", **reply}
    return renderer.conversation(
        sample.messages, sample.tools, reply, sample.finished, max_tokens, template=sample.template
    )


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose lessons are made."""

    job: JobDirectory
    spec: JobSpec
    backend: TrainerBackend
    left_out: LeftOut = field(default_factory=LeftOut)
    different: frozenset[str] = frozenset()
    """Names of the answers whose prompts the engine read otherwise."""
    tries: Callable[[int], Tries] = lambda seed: UNKEPT
    """Returns what is kept of the replies that are sampled with a seed."""

    def examples(self, samples: Iterable[Sample]) -> list[TrainingExample]:
        """Render samples; those that can't be are logged, and counted by reason in ``left_out``."""
        sequences = []
        for sample in samples:
            try:
                tokens = rendered(sample, self.backend.renderer, self.spec.hyperparameters.max_tokens)
                sequences.append(TrainingExample(sample, tokens))
            except Unrenderable as error:
                self.leave_out(f"completion {sample.completion_id}", error, sample.completion_id)
        return sequences

    def leave_out(self, what: str, error: Unrenderable, answer: str | None) -> None:
        """``answer``: its name, if nothing else about it may be learnt."""
        logger.warning("%s is left out: %s", what, error)
        self.left_out.add(error.why, answer)


def batches(lessons: Sequence[Lesson], batch_size: int, seed: int) -> list[list[Lesson]]:
    """Shuffle lessons into batches of about ``batch_size`` that each hold both classes in proportion.

    There are never more batches than items of the rarer class, so that no step pushes in one direction only.
    """
    generator = random.Random(seed)
    classes = [[lesson for lesson in lessons if lesson.good is good] for good in (True, False)]
    present = [members for members in classes if members]
    placed = []
    for members in present:
        shuffled = generator.sample(members, len(members))
        # Spread evenly over [0, 1): sorting by place then interleaves the classes.
        placed += [((i + generator.random()) / len(members), lesson) for i, lesson in enumerate(shuffled)]
    order = [lesson for _, lesson in sorted(placed, key=lambda pair: pair[0])]
    count = (
        min(math.ceil(len(lessons) / batch_size), *(len(members) for members in present)) if present else 0
    )
    edges = [round(i * len(order) / count) for i in range(count + 1)] if count else []
    return [order[start:end] for start, end in pairwise(edges)]
