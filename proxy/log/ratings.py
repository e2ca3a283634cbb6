"""What counts of all feedback: one effective rating a completion. Pure.

Taken back: gone. Same rater, same target, rated again: the later one. A rating of a turn or a conversation counts
for its completions up to the rating, unless they have one of their own. Several raters: the weighted mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from burnish.proxy.records import Feedback, Scope

NARROWEST_FIRST: tuple[Scope, ...] = ("completion", "turn", "conversation")

Area = tuple[str, ...]
"""What a piece of feedback covers: its scope and the ids that bound it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a completion with a reply stands: what scopes need to know."""

    completion_id: str
    conversation_id: str
    turn: str
    """Path up to the last user message: the same for all completions that work on one request of the user."""
    created_at: float

    def area(self, scope: Scope) -> Area:
        """Return what a rating of this completion with this scope covers."""
        return {
            "completion": (scope, self.completion_id),
            "turn": (scope, self.conversation_id, self.turn),
            "conversation": (scope, self.conversation_id),
        }[scope]


@dataclass(frozen=True, slots=True)
class Effective:
    """What all feedback on one completion comes to."""

    reward: float | None
    """None when it was only commented on."""
    weight: float
    """Sum over the raters."""
    feedback_ids: tuple[str, ...]
    comment: str | None
    correction: str | None
    preferred_over: str | None
    """Id of another completion."""


def effective(feedback: Sequence[Feedback], places: Iterable[Place]) -> dict[str, Effective]:
    """Return the effective rating of every completion that has any feedback, by id.

    ``feedback`` comes earliest first, complete for the conversations of ``places``.
    """
    by_id = {place.completion_id: place for place in places}
    covering: dict[Area, list[Feedback]] = defaultdict(list)
    for each in feedback:
        if each.undone_at is None and each.superseded_by is None and each.draft.completion_id in by_id:
            covering[by_id[each.draft.completion_id].area(each.draft.scope)].append(each)
    found = {place.completion_id: list(_about(place, covering)) for place in by_id.values()}
    return {completion_id: _summed(levels) for completion_id, levels in found.items() if any(levels)}


def _about(place: Place, covering: dict[Area, list[Feedback]]) -> Iterator[list[Feedback]]:
    """Yield the feedback that covers a completion, scope by scope; later completions aren't meant by it."""
    for scope in NARROWEST_FIRST:
        yield [
            each
            for each in covering.get(place.area(scope), ())
            if scope == "completion" or place.created_at <= each.created_at
        ]


def _summed(levels: list[list[Feedback]]) -> Effective:
    rated = [[each for each in level if each.draft.reward is not None] for level in levels]
    counting = next((level for level in rated if level), [])
    weight = sum(each.draft.weight for each in counting)
    total = sum(each.draft.weight * (each.draft.reward or 0.0) for each in counting)
    comment = next((each for level in levels for each in reversed(level) if each.draft.comment), None)
    correction = next((each for level in levels for each in reversed(level) if each.draft.correction), None)
    preferred = next(
        (each for level in levels for each in reversed(level) if each.draft.preferred_over), None
    )
    used = [*counting, *(each for each in (comment, correction, preferred) if each)]
    return Effective(
        reward=total / weight if counting else None,
        weight=weight,
        feedback_ids=tuple(dict.fromkeys(each.id for each in used)),
        comment=comment.draft.comment if comment else None,
        correction=correction.draft.correction if correction else None,
        preferred_over=preferred.draft.preferred_over if preferred else None,
    )
