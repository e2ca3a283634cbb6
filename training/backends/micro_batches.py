"""A batch in pieces that fit into memory. Knows no framework."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.training.rendering import Rendered


def micro_batches(sequences: Sequence[Rendered], tokens: int) -> list[list[int]]:
    """Group places of sequences, similar lengths together, so that a padded group has at most ``tokens`` tokens.

    A sequence that is longer than that is a group of its own.
    """
    groups: list[list[int]] = []
    for place in sorted(range(len(sequences)), key=lambda place: len(sequences[place].ids)):
        width = len(sequences[place].ids)  # the longest so far
        if groups and (len(groups[-1]) + 1) * width <= tokens:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups
