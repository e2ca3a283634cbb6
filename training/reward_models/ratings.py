"""The ratings that a reward model learns from, as numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from burnish.gate.confidence import order_error
from burnish.gate.preference import MIN_OF_A_CLASS, MIN_RATED, RatedReply
from burnish.gate.preference.base import Order, Vector, order
from burnish.gate.preference.preference_model import MOST_RATED
from burnish.gate.preference.ridge import splits
from burnish.gate.preference.saved import LearntFrom
from burnish.training.errors import NotTrainable
from burnish.training.reward_job import OLDER, RatingLine

Places = NDArray[np.intp]
REPEATS = 2
"""Cross-validations whose mean counts: one depends on how the conversations fell into parts."""
THUMB = 1.0


@dataclass(frozen=True, slots=True)
class Ratings:
    """Replies, what was said of each, and which was preferred over which."""

    lines: tuple[RatingLine, ...]
    replies: tuple[RatedReply, ...]
    """The same replies; one that was only compared has the reward +1 or −1."""
    pairs: tuple[tuple[int, int], ...]
    """(better, worse): places in ``replies``."""

    @property
    def good(self) -> NDArray[np.bool_]:
        """(N,)."""
        return np.array([reply.reward > 0 for reply in self.replies])

    @property
    def groups(self) -> list[str]:
        return [reply.conversation_id for reply in self.replies]

    def of(self, places: Places) -> Ratings:
        """Return a part of them. Pairs of which one reply isn't in it are dropped."""
        new = {int(old): place for place, old in enumerate(places)}
        return Ratings(
            tuple(self.lines[place] for place in places),
            tuple(self.replies[place] for place in places),
            tuple(
                (new[better], new[worse]) for better, worse in self.pairs if better in new and worse in new
            ),
        )

    def folds(self, seed: int) -> Iterator[tuple[Places, Places]]:
        """Yield (training, unseen) places of a cross-validation that leaves whole conversations out."""
        labels = np.where(self.good, 1.0, -1.0)
        for mask in splits(labels, self.groups, seed):
            yield np.flatnonzero(mask), np.flatnonzero(~mask)

    def learnt_from(self, left_out: dict[str, int]) -> LearntFrom:
        rewards = [line.reward for line in self.lines if line.reward]
        return LearntFrom(
            good=sum(reward == THUMB for reward in rewards),
            bad=sum(reward == -THUMB for reward in rewards),
            graded=sum(abs(reward) != THUMB for reward in rewards),
            pairs=len(self.pairs),
            conversations=len(set(self.groups)),
            left_out=left_out,
        )


def usable(lines: Sequence[RatingLine]) -> tuple[Ratings, dict[str, int]]:
    """Return the ratings that can be learnt from, and how many can't be, by reason. Raises NotTrainable."""
    compared = {place: -THUMB for line in lines for place in line.worse}
    compared |= {place: THUMB for place, line in enumerate(lines) if line.worse}
    rewards = [line.reward or compared.get(place, 0.0) for place, line in enumerate(lines)]
    places = [place for place, reward in enumerate(rewards) if reward and lines[place].weight]
    latest = places[-MOST_RATED:]
    left_out = {
        "neither good nor bad": len(lines) - len(places),
        OLDER: len(places) - len(latest),
    }
    replies = [_reply(line, reward) for line, reward in zip(lines, rewards, strict=True)]
    pairs = [(place, worse) for place, line in enumerate(lines) for worse in line.worse]
    ratings = Ratings(tuple(lines), tuple(replies), tuple(pairs)).of(np.array(latest, dtype=np.intp))
    _check_enough(int(ratings.good.sum()), len(latest))
    return ratings, {reason: count for reason, count in left_out.items() if count}


def _reply(line: RatingLine, reward: float) -> RatedReply:
    return RatedReply(
        line.conversation_id, line.prompt, line.text, line.finished, reward=reward, weight=line.weight
    )


def _check_enough(good: int, count: int) -> None:
    bad = count - good
    if min(good, bad) >= MIN_OF_A_CLASS and count >= MIN_RATED:
        return
    kinds = {"good": good, "bad": bad}
    lacking = [name for name, number in kinds.items() if number < MIN_OF_A_CLASS]
    advice = (
        f"{MIN_OF_A_CLASS} {' and '.join(lacking)} ones are needed at least: rate some answers {' and '.join(lacking)}"
        if lacking
        else f"{MIN_RATED} are needed at least: rate {MIN_RATED - count} more"
    )
    raise NotTrainable(
        f"{good} good and {bad} bad replies can't teach a reward model (a preference counts as one of each): {advice}"
    )


def unseen_order(scores: Sequence[Vector], good: NDArray[np.bool_]) -> Order:
    """Return the mean order of several cross-validations; ``scores``: (N,) each."""
    share = float(np.mean([order(vector[good], vector[~good]).share for vector in scores]))
    counts = int(good.sum()), int((~good).sum())
    # By the formula a perfect order has no error. So it is taken for one with half a reply in the wrong place.
    return Order(share, order_error(min(share, 1 - 0.5 / min(counts)), *counts))
