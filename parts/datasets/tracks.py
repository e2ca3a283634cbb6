"""A rollout's steps → the lines that an agent's history took. Pure.

An agent mostly appends to its history: one track. If it rewrites it, or asks from an earlier point again, there are
several, which may share their first steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from burnish.proxy.log.tree import path

Step = Mapping[str, Any]
"""One of ``steps`` of a rollout, as ``GET /burnish/rollouts`` has it."""


class TrackStep(NamedTuple):
    step: Step
    number: int
    """Among the rollout's steps."""
    new: int
    """How many messages at the end of its context came since the step before and its reply; all of the first one's."""
    shared: bool
    """Whether an earlier track has it, too."""


Goes = Callable[[Step, Step], bool]
"""Whether a step goes on from another one, beyond its messages."""


def tracks(steps: Sequence[Step], goes: Goes = lambda parent, child: True) -> list[list[TrackStep]]:
    """Return the tracks, in the order of their last steps' numbers."""
    parents = [_parent(steps, number, goes) for number in range(len(steps))]
    leaves = [
        number
        for number in range(len(steps))
        if number not in {parent for parent, _ in filter(None, parents)}
    ]
    numbers: set[int] = set()
    paths = []
    for leaf in leaves:
        track: list[TrackStep] = []
        number: int | None = leaf
        while number is not None:
            parent = parents[number]
            context = len(steps[number]["messages"])
            track.append(
                TrackStep(steps[number], number, context - (parent[1] if parent else 0), number in numbers)
            )
            numbers.add(number)
            number = parent[0] if parent else None
        paths.append(track[::-1])
    return paths


def _parent(steps: Sequence[Step], number: int, goes: Goes) -> tuple[int, int] | None:
    """Return the step that one continues, and how many messages both share, the reply included."""
    step = steps[number]
    parent = step["continues"]
    if parent is None or parent >= number:
        return None
    history = [*steps[parent]["messages"], steps[parent]["reply"]]
    context = step["messages"]
    if len(context) < len(history) or path(context[: len(history)])[-1].key != path(history)[-1].key:
        return None
    return (parent, len(history)) if goes(steps[parent], step) else None


def token_prefix(parent: Step, child: Step) -> bool:
    """Whether the prompt of a step begins with all tokens of the step before; else the text was tokenised anew."""
    parent_tokens, child_tokens = parent["tokens"], child["tokens"]
    if not parent_tokens or not child_tokens:
        return not parent_tokens and not child_tokens
    history = [*parent_tokens["prompt"], *parent_tokens["reply"]]
    return bool(child_tokens["prompt"][: len(history)] == history)


def nonempty(**members: Any) -> dict[str, Any]:
    """Return the members of an object that say something: formats leave out the others."""
    return {name: member for name, member in members.items() if member}
