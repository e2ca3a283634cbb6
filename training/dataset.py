"""Rated completions → token sequences, and the order in which batches see them.

No model is needed here, only its tokenizer.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

from burnish.training.job import Sample
from burnish.training.rendering import Rendered, Renderer, Unrenderable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Example:
    """A rated completion as the model sees it."""

    sample: Sample
    tokens: Rendered


class HasClass(Protocol):
    """What batching looks at."""

    @property
    def good(self) -> bool:
        """Whether it is to be made likelier."""
        ...


_Item = TypeVar("_Item", bound=HasClass)


def examples(samples: Sequence[Sample], renderer: Renderer, max_tokens: int) -> list[Example]:
    """Render samples; those that the template can't express, or that are too long, are left out and logged."""
    rendered = []
    for sample in samples:
        try:
            tokens = renderer.conversation(
                sample.messages, sample.tools, sample.reply, sample.finished, max_tokens
            )
        except Unrenderable as error:
            logger.warning("completion %s is left out: %s", sample.completion_id, error)
        else:
            rendered.append(Example(sample, tokens))
    return rendered


def batches(items: Sequence[_Item], batch_size: int, seed: int) -> list[list[_Item]]:
    """Shuffle items into batches of about ``batch_size`` that each hold both classes in proportion.

    There are never more batches than items of the rarer class, so that no step pushes in one direction only.
    """
    generator = random.Random(seed)
    classes = [
        [item for item in items if item.good],
        [item for item in items if not item.good],
    ]
    present = [members for members in classes if members]
    placed = []
    for members in present:
        shuffled = generator.sample(members, len(members))
        # Spread evenly over [0, 1): sorting by place then interleaves the classes.
        placed += [((i + generator.random()) / len(members), item) for i, item in enumerate(shuffled)]
    order = [item for _, item in sorted(placed, key=lambda pair: pair[0])]
    count = min(math.ceil(len(items) / batch_size), *(len(members) for members in present)) if present else 0
    edges = [round(i * len(order) / count) for i in range(count + 1)] if count else []
    return [order[start:end] for start, end in pairwise(edges)]
