"""What counts of all feedback: one effective rating a completion. Pure.

Taken back: gone. Same rater, same target, rated again: the later one. A rating of a turn or a conversation counts
for its completions up to the rating, unless they have one of their own. Several raters: the weighted mean.

What is shown is what was given. What is learnt from is ``heard`` before: by rater, on the rater's own scale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

from burnish.proxy.records import Feedback, Scope, Source

# What somebody did is a weaker sign than what somebody said.
SOURCE_WEIGHTS: Mapping[Source, float] = {"human": 1.0, "judge": 1.0, "environment": 1.0, "implicit": 0.3}
GRADED = frozenset({"likert", "scalar"})
"""Scales on which raters have habits of their own; good and bad mean the same to everybody."""
# With fewer grades, a mean and a deviation say more of chance than of the rater.
MIN_GRADES = 8
# Below, the grades of a rater don't differ: what is left is rounding.
LEAST_DEVIATION = 1e-6

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


def heard(feedback: Sequence[Feedback], rater_weights: Mapping[str, float]) -> list[Feedback]:
    """Return feedback as training hears it; raters with a weight of 0 are not heard.

    Weights are multiplied: the rating's own, the rater's (1 unless given), the source's. Grades of a rater who has
    given ``MIN_GRADES`` and does not always give the same become ``(reward − mean) / deviation`` over that rater's
    grades, within [-1, 1]: who never says less than 4 of 5 then still tells better from worse. That keeps the order
    of a rater's grades, and leaves some of them above 0 and some below.
    """
    habits = _habits(feedback)
    found = []
    for each in feedback:
        draft = each.draft
        weight = draft.weight * rater_weights.get(draft.rater, 1.0) * SOURCE_WEIGHTS[draft.source]
        reward = draft.reward
        if reward is not None and draft.scale in GRADED and draft.rater in habits:
            mean, deviation = habits[draft.rater]
            reward = max(-1.0, min(1.0, (reward - mean) / deviation))
        if weight:
            found.append(replace(each, draft=replace(draft, reward=reward, weight=weight)))
    return found


def _habits(feedback: Sequence[Feedback]) -> dict[str, tuple[float, float]]:
    """Return mean and deviation of the grades that count, by rater, where they say something of the rater."""
    grades: dict[str, list[float]] = defaultdict(list)
    for each in feedback:
        counts = each.undone_at is None and each.superseded_by is None
        if counts and each.draft.reward is not None and each.draft.scale in GRADED:
            grades[each.draft.rater].append(each.draft.reward)
    return {
        rater: (fmean(given), pstdev(given))
        for rater, given in grades.items()
        if len(given) >= MIN_GRADES and pstdev(given) > LEAST_DEVIATION
    }


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
