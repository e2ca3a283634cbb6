"""Combines all feedback into one effective rating a completion. Pure.

A rating that was undone doesn't count, nor one that the same rater replaced. A rating of a turn or a conversation
counts for all completions of its branch up to the rating, unless they have one of their own. They share its weight, so
one opinion counts once. Comments, corrections and comparisons belong to their own completion only. Several raters give
the weighted mean. All raters that one key names weigh together as one: a client may name as many as it likes. A judge,
and what burnish read from results of tools, is heard only of answers that no person said anything of.

Clients see ratings as they were given. Training uses ``for_training``, which weights raters and normalises grades.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, sqrt
from typing import Literal, NamedTuple, get_args

from burnish.proxy.records import Feedback, FeedbackDraft, RaterKey, Scope, Source

# A person's behaviour is a weaker sign than a rating, and so is what a model thinks.
SOURCE_WEIGHTS: Mapping[Source, float] = {
    **{"human": 1.0, "environment": 1.0, "duel": 1.0},
    **{"judge": 0.3, "implicit": 0.3},
}
PEOPLE: frozenset[Source] = frozenset({"human", "duel", "implicit"})
"""Sources behind which a person is."""
GRADED = frozenset({"likert", "scalar"})
"""Scales that raters use differently; good and bad mean the same to all."""
# With fewer grades, a mean and a deviation say more of chance than of the rater.
MIN_GRADES = 8
# Below, the grades of a rater don't differ: what is left is rounding.
LEAST_DEVIATION = 1e-6

NARROWEST_FIRST: tuple[Scope, ...] = ("completion", "turn", "conversation")


class Habit(NamedTuple):
    """How a rater uses a scale: mean and standard deviation of that rater's grades."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class CompletionPlace:
    completion_id: str
    continues: str | None
    """The completion that it continues."""
    begins_turn: bool
    """True if a person spoke since that one; else both belong to the same turn."""
    created_at: float


@dataclass(frozen=True, slots=True)
class Effective:
    reward: float | None
    """None when it was only commented on."""
    weight: float
    """Sum over the raters; those of one key count as the weightiest of them. Without a rating: that of the weightiest
    comment, correction or comparison."""
    feedback_ids: tuple[str, ...]
    comment: str | None
    correction: str | None
    preferred_over: tuple[str, ...]
    """Names of other answers."""


def for_training(
    feedback: Sequence[Feedback],
    rater_weights: Mapping[str, float],
    habits: Mapping[RaterKey, Habit] | None = None,
) -> list[Feedback]:
    """Return feedback as training uses it; raters with a weight of 0 are left out.

    Weights are multiplied: the rating's own, the rater's (1 unless given), the source's. A rater with a habit has
    each grade replaced by ``(reward − mean) / deviation`` over that rater's grades, within [-1, 1]. Grades keep
    their order, and some are above 0 and some below, even if a rater never gives less than 4 of 5. ``habits``: of
    all raters here; by default taken from ``feedback``.
    """
    if habits is None:
        habits = habits_of(grades_of(feedback))
    statements = []
    for statement in feedback:
        draft = statement.draft
        weight = draft.weight * rater_weights.get(draft.rater, 1.0) * SOURCE_WEIGHTS[draft.source]
        reward = draft.reward
        if reward is not None and draft.scale in GRADED and draft.voice in habits:
            mean, deviation = habits[draft.voice]
            reward = max(-1.0, min(1.0, (reward - mean) / deviation))
        if weight:
            statements.append(replace(statement, draft=replace(draft, reward=reward, weight=weight)))
    return statements


def grades_of(feedback: Iterable[Feedback]) -> dict[RaterKey, Counter[float]]:
    """Return how often each rater gave each grade, by rater; grades that no longer count are left out."""
    grades: dict[RaterKey, Counter[float]] = defaultdict(Counter)
    for statement in feedback:
        counts = statement.undone_at is None and statement.superseded_by is None
        if counts and statement.draft.reward is not None and statement.draft.scale in GRADED:
            grades[statement.draft.voice][statement.draft.reward] += 1
    return grades


def habits_of(grades: Mapping[RaterKey, Counter[float]]) -> dict[RaterKey, Habit]:
    """Return the habits of the raters with ``MIN_GRADES`` or more that are not all the same."""
    return {rater: habit for rater, counter in grades.items() if (habit := _habit(counter))}


def _habit(grades: Counter[float]) -> Habit | None:
    count = grades.total()
    if count < MIN_GRADES:
        return None
    mean = fsum(grade * times for grade, times in grades.items()) / count
    deviation = sqrt(fsum(times * (grade - mean) ** 2 for grade, times in grades.items()) / count)
    return Habit(mean, deviation) if deviation > LEAST_DEVIATION else None


def effective(feedback: Sequence[Feedback], places: Iterable[CompletionPlace]) -> dict[str, Effective]:
    """Return the effective rating of every answer that has any feedback, by its name (``records.answer_name``).

    ``feedback`` comes earliest first, complete for the conversations of ``places``.
    """
    ways = _Ways(places)
    about: dict[str, list[_Share]] = defaultdict(list)
    for statement in feedback:
        if (
            statement.undone_at is None
            and statement.superseded_by is None
            and statement.draft.completion_id in ways.places
        ):
            covered = ways.covered_by(statement)
            for answer in covered:
                about[answer].append(_Share(statement, statement.draft.weight / len(covered)))
    by_people = _heard_from_people(about)
    ratings = {
        answer: _summed(
            answer, [share for share in shares if not (answer in by_people and share.draft.yields)]
        )
        for answer, shares in about.items()
    }
    return {answer: rating for answer, rating in ratings.items() if rating.feedback_ids}


class _Share(NamedTuple):
    """A piece of feedback, and its weight for one of the answers that it covers."""

    feedback: Feedback
    weight: float

    @property
    def draft(self) -> FeedbackDraft:
        return self.feedback.draft


def _heard_from_people(about: Mapping[str, Iterable[_Share]]) -> set[str]:
    """Return the answers that a person said something of, also those that they found worse than another one."""
    answers = set()
    for answer, shares in about.items():
        for draft in (share.draft for share in shares if share.draft.source in PEOPLE):
            answers |= {answer, draft.preferred_over or answer}
    return answers


def covered(feedback: Feedback, places: Iterable[CompletionPlace]) -> list[str]:
    """Return the names of the answers that feedback is about. ``places``: those of its conversation."""
    return _Ways(places).covered_by(feedback)


class _Ways:
    """Completions linked by ``continues``: edits and regenerations are branches."""

    def __init__(self, places: Iterable[CompletionPlace]) -> None:
        self.places = {place.completion_id: place for place in places}
        self._after: dict[str, list[CompletionPlace]] = defaultdict(list)
        for place in self.places.values():
            if place.continues:
                self._after[place.continues].append(place)

    def covered_by(self, feedback: Feedback) -> list[str]:
        """Return the completions that feedback is about: up from its target, and down while it is unambiguous."""
        draft = feedback.draft
        target = self.places[draft.completion_id]
        if draft.scope == "completion":
            return [draft.answer]
        within_turn = draft.scope == "turn"
        return [
            place.completion_id
            for place in (
                *self._up(target, within_turn),
                target,
                *self._down(target, within_turn, feedback.created_at),
            )
        ]

    def _up(self, place: CompletionPlace, within_turn: bool) -> Iterator[CompletionPlace]:
        while not (within_turn and place.begins_turn):
            earlier = self.places.get(place.continues or "")
            if earlier is None:
                return
            yield earlier
            place = earlier

    def _down(self, place: CompletionPlace, within_turn: bool, until: float) -> Iterator[CompletionPlace]:
        """Yield the completions that followed by then. Of several branches, only one that was continued counts."""
        while True:
            successors = [
                successor
                for successor in self._after.get(place.completion_id, ())
                if successor.created_at <= until and not (within_turn and successor.begins_turn)
            ]
            if len(successors) > 1:
                successors = [successor for successor in successors if successor.completion_id in self._after]
            if len(successors) != 1:
                return
            (place,) = successors
            yield place


def _summed(answer: str, shares: Sequence[_Share]) -> Effective:
    """Return what feedback that covers an answer comes to, earliest first."""
    rated_shares = [share for share in shares if share.draft.reward is not None]
    narrowest = min((NARROWEST_FIRST.index(share.draft.scope) for share in rated_shares), default=0)
    # Of one rater, who may have rated a turn at several of its answers, the last word counts.
    heeded = [share for share in rated_shares if NARROWEST_FIRST.index(share.draft.scope) == narrowest]
    counting = list({share.draft.voice: share for share in heeded}.values())
    own = [share.feedback for share in reversed(shares) if share.draft.answer == answer]
    comment = next((share for share in own if share.draft.comment), None)
    correction = next((share for share in own if share.draft.correction), None)
    preferred = {over: share for share in reversed(own) if (over := share.draft.preferred_over)}
    # The latest pair first: if nothing else was said, the answer counts as new with each further one.
    pairs = sorted(preferred.values(), key=lambda share: share.id, reverse=True)
    words = [*(share for share in (comment, correction) if share), *pairs]
    reward, weight = _mean(_opinions_of(counting))
    used = [*(share.feedback for share in counting), *words]
    return Effective(
        reward=reward,
        weight=max((share.draft.weight for share in words), default=0.0) if reward is None else weight,
        feedback_ids=tuple(dict.fromkeys(share.id for share in used)),
        comment=comment.draft.comment if comment else None,
        correction=correction.draft.correction if correction else None,
        preferred_over=tuple(over for share in pairs if (over := share.draft.preferred_over)),
    )


def _mean(opinions: Sequence[tuple[float, float]]) -> tuple[float | None, float]:
    """Return the weighted mean of rewards and the sum of their weights; None for no rewards."""
    weight = sum(weight for _, weight in opinions)
    return (sum(reward * weight for reward, weight in opinions) / weight if opinions else None), weight


def _opinions_of(counting: Sequence[_Share]) -> list[tuple[float, float]]:
    """Return rewards and weights: one for each rater whose name is true, and one for all raters of a key."""
    groups: dict[RaterKey | str, list[_Share]] = defaultdict(list)
    for share in counting:
        shared = share.draft.given_with not in (None, "proxy")
        groups[str(share.draft.given_with) if shared else share.draft.voice].append(share)
    return [
        (
            sum(share.weight * (share.draft.reward or 0.0) for share in group)
            / sum(share.weight for share in group),
            max(share.weight for share in group),
        )
        for group in groups.values()
    ]


@dataclass(frozen=True, slots=True)
class Rater:
    """One rater's ratings in figures; each answer counts once."""

    name: str
    good: int
    """Answers."""
    bad: int
    commented: int
    """Answers, whether they are rated, too, or not."""
    compared: int
    """Answers that others found good or bad, too."""
    agreed: int
    """Of these, how often the others, by their weighted mean, found the same."""
    by_chance: float
    """How often they would have if neither had looked at the answer: Cohen 1960 (doi:10.1177/001316446002000104)."""

    @property
    def statements(self) -> int:
        return self.good + self.bad + self.commented


RaterFigure = Literal["good", "bad", "commented", "compared", "agreed", "found_good", "others_found_good"]
"""As of ``Rater``; the last two are of the compared answers."""


def raters(figures: Mapping[tuple[str, RaterFigure], int]) -> list[Rater]:
    """Return all who rated answers good or bad, or commented on some, the busiest first, and how far they agree.

    ``figures``: the sums of ``rater_figures`` over all conversations.
    """
    people = [_rater(name, figures) for name in {name for name, _ in figures}]
    busy = (rater for rater in people if rater.statements)
    return sorted(busy, key=lambda rater: (-rater.statements, rater.name))


def _rater(name: str, figures: Mapping[tuple[str, RaterFigure], int]) -> Rater:
    figure: dict[RaterFigure, int] = {key: figures.get((name, key), 0) for key in get_args(RaterFigure)}
    count, own, peers = figure["compared"], figure["found_good"], figure["others_found_good"]
    return Rater(
        name=name,
        good=figure["good"],
        bad=figure["bad"],
        commented=figure["commented"],
        compared=count,
        agreed=figure["agreed"],
        by_chance=(own * peers + (count - own) * (count - peers)) / count if count else 0.0,
    )


def rater_figures(
    feedback: Sequence[Feedback], places: Iterable[CompletionPlace]
) -> Counter[tuple[str, RaterFigure]]:
    """Count what each rater found, and how far the others agree. ``feedback`` comes from ``for_training``."""
    places = list(places)
    figures: Counter[tuple[str, RaterFigure]] = Counter()
    for name in {statement.draft.rater for statement in feedback}:
        ratings, those_of_others = (
            effective(
                [statement for statement in feedback if (statement.draft.rater == name) is is_own], places
            )
            for is_own in (True, False)
        )
        own, peers = _opinions(ratings), _opinions(those_of_others)
        both = [(own[answer], peers[answer]) for answer in own.keys() & peers.keys()]
        counts: dict[RaterFigure, int] = {
            "good": sum(own.values()),
            "bad": len(own) - sum(own.values()),
            "commented": sum(rating.comment is not None for rating in ratings.values()),
            "compared": len(both),
            "agreed": sum(opinion == peer_opinion for opinion, peer_opinion in both),
            "found_good": sum(opinion for opinion, _ in both),
            "others_found_good": sum(peer_opinion for _, peer_opinion in both),
        }
        figures.update({(name, figure): count for figure, count in counts.items() if count})
    return figures


RatingFigure = Literal[
    "ratings", "good", "bad", "comments", "corrections", "judged_and_rated", "judged_as_rated"
]
"""The last two: answers that a judge and people both found good or bad, and those on which they agree."""


def rating_figures(feedback: Sequence[Feedback], places: Iterable[CompletionPlace]) -> Counter[RatingFigure]:
    """Count effective ratings as they were given."""
    places = list(places)
    ratings = effective(feedback, places).values()
    # A rating of a whole turn is one, however many answers it covers.
    rewards = {
        rating.feedback_ids[0]: rating.reward for rating in ratings if rating.reward is not None
    }.values()
    agreed, both = _agreement_with_judges(feedback, places)
    return Counter(
        {
            "ratings": len(rewards),
            "good": sum(reward > 0 for reward in rewards),
            "bad": sum(reward < 0 for reward in rewards),
            "comments": sum(rating.comment is not None for rating in ratings),
            "corrections": sum(rating.correction is not None for rating in ratings),
            "judged_and_rated": both,
            "judged_as_rated": agreed,
        }
    )


def _agreement_with_judges(
    feedback: Sequence[Feedback], places: Sequence[CompletionPlace]
) -> tuple[int, int]:
    """Return on how many answers judges and people agree, and how many answers both found good or bad.

    Judges often only compare: an answer that they corrected is bad to them, one that they prefer to another is good.
    """
    if not any(statement.draft.source == "judge" for statement in feedback):
        return 0, 0
    by_judges = effective([statement for statement in feedback if statement.draft.source == "judge"], places)
    judges = {
        answer: rating.reward > 0 if rating.reward else not rating.correction
        for answer, rating in by_judges.items()
    }
    people = _opinions(
        effective([statement for statement in feedback if statement.draft.source in PEOPLE], places)
    )
    both = judges.keys() & people.keys()
    return sum(judges[answer] == people[answer] for answer in both), len(both)


def _opinions(ratings: Mapping[str, Effective]) -> dict[str, bool]:
    """Return by answer whether it was found good; those that were found neither are left out."""
    return {answer: rating.reward > 0 for answer, rating in ratings.items() if rating.reward}
