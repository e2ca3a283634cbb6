"""A batch in pieces that fit into memory. Knows no framework."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.training.backends.base import Lesson
from burnish.training.job import LossName
from burnish.training.rendering import Rendered


def micro_batches(sequences: Sequence[Rendered], tokens: int) -> list[list[int]]:
    """Group places of sequences, similar lengths together, so that a padded group has at most ``tokens`` tokens.

    A sequence that is longer than that is a group of its own.
    """
    return _groups([(1, len(sequence.ids)) for sequence in sequences], tokens)


def lesson_batches(batch: Sequence[Lesson], tokens: int) -> list[tuple[LossName, list[Lesson]]]:
    """Group lessons that are learnt by the same loss in the same way; the replies of a lesson stay together.

    Rehearsed lessons stay apart, because no metric counts them.
    """
    pieces: list[tuple[LossName, list[Lesson]]] = []
    for loss, rehearsed in dict.fromkeys((lesson.loss, lesson.rehearsed) for lesson in batch):
        members = [lesson for lesson in batch if (lesson.loss, lesson.rehearsed) == (loss, rehearsed)]
        sizes = [(len(m.replies), max(len(reply.tokens.ids) for reply in m.replies)) for m in members]
        pieces += [(loss, [members[place] for place in places]) for places in _groups(sizes, tokens)]
    return pieces


def _groups(sizes: Sequence[tuple[int, int]], tokens: int) -> list[list[int]]:
    """Group places of (rows, tokens in the longest of them)."""
    groups: list[list[int]] = []
    rows = 0
    for place in sorted(range(len(sizes)), key=lambda place: sizes[place][1]):
        more, width = sizes[place]  # the longest so far
        if groups and (rows + more) * width <= tokens:
            groups[-1].append(place)
            rows += more
        else:
            groups.append([place])
            rows = more
    return groups
