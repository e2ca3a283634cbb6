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


class Taken(NamedTuple):
    """A step of a track."""

    step: Step
    number: int
    """Among the rollout's steps."""
    new: int
    """How many messages at the end of its context came since the step before and its reply; all of the first one's."""
    shared: bool
    """Whether an earlier track has it, too."""


Goes = Callable[[Step, Step], bool]
"""Whether a step goes on from another one, beyond its messages."""


def tracks(steps: Sequence[Step], goes: Goes = lambda before, after: True) -> list[list[Taken]]:
    """Return the tracks, in the order of their last steps' numbers."""
    parents = [_parent(steps, number, goes) for number in range(len(steps))]
    leaves = [
        number for number in range(len(steps)) if number not in {each for each, _ in filter(None, parents)}
    ]
    seen: set[int] = set()
    found = []
    for leaf in leaves:
        track: list[Taken] = []
        number: int | None = leaf
        while number is not None:
            before = parents[number]
            context = len(steps[number]["messages"])
            track.append(Taken(steps[number], number, context - (before[1] if before else 0), number in seen))
            seen.add(number)
            number = before[0] if before else None
        found.append(track[::-1])
    return found


def _parent(steps: Sequence[Step], number: int, goes: Goes) -> tuple[int, int] | None:
    """Return the step that one continues, and how many messages both share, the reply included."""
    after = steps[number]
    before = after["continues"]
    if before is None or before >= number:
        return None
    held = [*steps[before]["messages"], steps[before]["reply"]]
    context = after["messages"]
    if len(context) < len(held) or path(context[: len(held)])[-1].key != path(held)[-1].key:
        return None
    return (before, len(held)) if goes(steps[before], after) else None


def token_prefix(before: Step, after: Step) -> bool:
    """Whether the prompt of a step begins with all tokens of the step before; else the text was tokenised anew."""
    told, new = before["tokens"], after["tokens"]
    if not told or not new:
        return not told and not new
    held = [*told["prompt"], *told["reply"]]
    return bool(new["prompt"][: len(held)] == held)
