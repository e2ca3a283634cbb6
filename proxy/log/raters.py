"""How raters rate, and how far they agree. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from burnish.proxy.log.ratings import Effective, Place, effective
from burnish.proxy.records import Feedback


@dataclass(frozen=True, slots=True)
class Rater:
    """One rater's ratings in figures; each answer counts once."""

    name: str
    good: int
    """Answers."""
    bad: int
    compared: int
    """Answers that others found good or bad, too."""
    agreed: int
    """Of these, how often the others, by their weighted mean, found the same."""
    by_chance: float
    """How often they would have if neither had looked at the answer: Cohen 1960 (doi:10.1177/001316446002000104)."""

    @property
    def rated(self) -> int:
        """Answers."""
        return self.good + self.bad


def raters(feedback: Sequence[Feedback], places: Iterable[Place]) -> list[Rater]:
    """Return all who found answers good or bad, the busiest first; ``feedback`` comes from ``for_training``."""
    places = list(places)
    names = {each.draft.rater for each in feedback}
    found = [each for name in names if (each := _rater(name, feedback, places)).rated]
    return sorted(found, key=lambda each: (-each.rated, each.name))


def _rater(name: str, feedback: Sequence[Feedback], places: Sequence[Place]) -> Rater:
    own, others = (
        _opinions(effective([each for each in feedback if (each.draft.rater == name) is mine], places))
        for mine in (True, False)
    )
    both = [(own[answer], others[answer]) for answer in own.keys() & others.keys()]
    mine, theirs = (sum(pair[side] for pair in both) for side in (0, 1))
    count = len(both)
    return Rater(
        name=name,
        good=sum(own.values()),
        bad=len(own) - sum(own.values()),
        compared=count,
        agreed=sum(one == another for one, another in both),
        by_chance=(mine * theirs + (count - mine) * (count - theirs)) / count if count else 0.0,
    )


def _opinions(ratings: Mapping[str, Effective]) -> dict[str, bool]:
    """Return by answer whether it was found good; those that were found neither are left out."""
    return {answer: each.reward > 0 for answer, each in ratings.items() if each.reward}
