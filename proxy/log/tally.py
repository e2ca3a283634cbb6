"""Counts that are kept up to date by reading what changed, so asking costs what is new.

Ratings as training uses them (``RatingTally``), and what the log holds and what was said of it (``Totals``).

Of messages only those of the rated answers are read, because a text may be what can't teach (``Rules.text_faults``).
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import add, sub
from typing import Any, Generic, NamedTuple, TypeVar

from burnish.proxy.log import feedback
from burnish.proxy.log.changes import Changes, Recount
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.rated import Rating, weighed
from burnish.proxy.log.ratings import (
    CompletionPlace,
    Rater,
    RatingFigure,
    effective,
    for_training,
    rater_figures,
    raters,
    rating_figures,
)
from burnish.proxy.records import Feedback

Figure = TypeVar("Figure")

ROWS_AFTER = {
    "completions": "SELECT count(*), max(n) FROM completion WHERE n > ?1",
    "conversations": """SELECT count(*), (SELECT max(n) FROM completion) FROM
        (SELECT DISTINCT +conversation_id AS name FROM completion WHERE n > ?1) WHERE NOT EXISTS (
            SELECT 1 FROM completion WHERE conversation_id = name AND n <= ?1
        )""",
    "passthrough": "SELECT count(*), max(n) FROM passthrough WHERE n > ?1",
    "feedback": "SELECT count(*), max(rowid) FROM feedback WHERE rowid > ?1",
}
"""How many there are behind a row, and the last row. (The + keeps SQLite from reading the whole index.)"""
ALL = ROWS_AFTER | {
    "conversations": "SELECT count(DISTINCT conversation_id), max(n) FROM completion WHERE ?1 = 0"
}
"""The same from the beginning."""

RATINGS: tuple[RatingFigure, ...] = ("ratings", "good", "bad", "comments", "corrections")


class ReadyCounts(NamedTuple):
    """Ratings that a run could learn from. A rating of several answers is one."""

    new: int = 0
    """Ratings since the last run that came to a verdict."""
    good: int = 0
    bad: int = 0
    neutral: int = 0
    comments: int = 0
    """Answers that were not rated good, with a comment."""
    pairs: int = 0
    """Answers with a correction, or preferred over another answer."""

    @property
    def new_comments(self) -> int:
        """Those that count for the next run: after a verdict, what is commented anew."""
        return min(self.new, self.comments)


class RatingCounts(NamedTuple):
    ready: ReadyCounts
    """Those that were not learnt yet."""
    all: ReadyCounts
    """The same if nothing had been learnt yet."""
    left_out: Mapping[str, int]
    """Rated answers that were not learnt and cannot be, by what ``Rating.fault`` says."""


class RatingSummary(NamedTuple):
    """A rated answer, as far as counts need it."""

    feedback_ids: tuple[str, ...]
    """The first one is the rating's own."""
    sign: int
    """1: good, -1: bad, 0: neither, or not rated."""
    commented: bool
    paired: bool
    fault: str | None


class RatingTally:
    """Counts ratings as training uses them. One thread at a time."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._changes = Changes(scaled=True, next_turns=rules.next_turns)
        self._summaries: dict[str, Sequence[RatingSummary]] = {}
        """By conversation."""
        self._counted: dict[str, RatingCounts] = {}
        """By conversation, for ``_learnt`` and ``_since``."""
        self._total = NO_RATINGS
        self._learnt: Collection[str] = ()
        self._since = ""

    def counts(
        self, connection: sqlite3.Connection, deletions: int, learnt_ids: Collection[str], since: str
    ) -> RatingCounts:
        """Read what changed and return all counts.

        ``deletions`` grows whenever rows are deleted. ``learnt_ids``: feedback ids; the same object as long as it is
        unchanged. ``since``: ratings with feedback after this moment are new, as the 26 characters of an id; "" = all.
        """
        if learnt_ids is not self._learnt or since != self._since:
            self._learnt, self._since = learnt_ids, since
            self._recount()
        with self._changes.look(connection, deletions) as change:
            if change:
                self._update(connection, change)
        return self._total

    def _update(self, connection: sqlite3.Connection, change: Recount) -> None:
        if change.anew:
            self._summaries = {}
            self._recount()
        used = for_training(change.feedback, self._rules.rater_weights, change.habits)
        ratings = effective(used, feedback.places_of(connection, change.conversations, used))
        by_conversation: dict[str, list[RatingSummary]] = defaultdict(list)
        for rating in weighed(connection, ratings, self._rules):
            by_conversation[rating.conversation_id].append(summarised(rating))
        for name in change.conversations:
            self._replace(name, by_conversation.get(name, ()))

    def _replace(self, name: str, summaries: Sequence[RatingSummary]) -> None:
        """Replace what a conversation adds to the counts."""
        old, new = self._counted.pop(name, NO_RATINGS), NO_RATINGS
        self._summaries.pop(name, None)
        if summaries:
            self._summaries[name] = summaries
            new = self._counted[name] = counted(summaries, self._learnt, self._since)
        self._total = _combined(add, _combined(sub, self._total, old), new)

    def _recount(self) -> None:
        """Count all that was read, from the beginning."""
        self._total = NO_RATINGS
        self._counted = {
            name: counted(summaries, self._learnt, self._since) for name, summaries in self._summaries.items()
        }
        for counts in self._counted.values():
            self._total = _combined(add, self._total, counts)


def summarised(rating: Rating) -> RatingSummary:
    return RatingSummary(
        feedback_ids=rating.feedback_ids,
        sign=(rating.reward > 0) - (rating.reward < 0),
        commented=rating.comment is not None,
        paired=bool(rating.correction or rating.worse),
        fault=rating.fault,
    )


NO_RATINGS = RatingCounts(ReadyCounts(), ReadyCounts(), {})


def counted(summaries: Sequence[RatingSummary], learnt_ids: Collection[str], since: str) -> RatingCounts:
    """Count some rated answers; see ``RatingTally.counts``."""
    usable = [summary for summary in summaries if summary.fault is None]
    unlearnt = [summary for summary in usable if summary.feedback_ids[0] not in learnt_ids]
    left_out = Counter(
        summary.fault for summary in summaries if summary.fault and summary.feedback_ids[0] not in learnt_ids
    )
    return RatingCounts(_ready(unlearnt, since), _ready(usable, since), left_out)


def _ready(summaries: Sequence[RatingSummary], since: str) -> ReadyCounts:
    def opinions(some: Iterable[RatingSummary]) -> int:
        return len({summary.feedback_ids[0] for summary in some})

    return ReadyCounts(
        new=opinions(
            summary
            for summary in summaries
            if any(name.partition("_")[2] > since for name in summary.feedback_ids)
        ),
        good=opinions(summary for summary in summaries if summary.sign > 0),
        bad=opinions(summary for summary in summaries if summary.sign < 0),
        neutral=opinions(summary for summary in summaries if summary.sign == 0),
        comments=sum(summary.commented and summary.sign <= 0 for summary in summaries),
        pairs=sum(summary.paired for summary in summaries),
    )


def _combined(combine: Callable[[Any, Any], Any], first: RatingCounts, second: RatingCounts) -> RatingCounts:
    """``combine`` adds or subtracts."""
    return RatingCounts(
        ReadyCounts(*map(combine, first.ready, second.ready)),
        ReadyCounts(*map(combine, first.all, second.all)),
        combine(Counter(first.left_out), Counter(second.left_out)) if second.left_out else first.left_out,
    )


class Totals:
    """One thread at a time. ``deletions``, in its methods, grows whenever rows are deleted."""

    def __init__(self) -> None:
        self._deletions = -1
        self._counts: dict[str, int] = {}
        self._last: dict[str, int] = {}
        """The last row that was counted."""
        self._ratings = _Sums(rating_figures, scaled=False)
        self._raters = _Sums(rater_figures, scaled=True)

    def counts(self, connection: sqlite3.Connection, deletions: int) -> dict[str, int]:
        """Count rows, and effective ratings: a rating of several answers is one."""
        if deletions != self._deletions:
            self._deletions, self._counts, self._last = deletions, dict.fromkeys(ROWS_AFTER, 0), {}
        for name, later in ROWS_AFTER.items():
            last_row = self._last.get(name, 0)
            count, last = connection.execute(later if last_row else ALL[name], (last_row,)).fetchone()
            self._counts[name] += count
            self._last[name] = last or last_row
        ratings = self._ratings.total(connection, deletions)
        return self._counts | {name: ratings.get(name, 0) for name in RATINGS}

    def raters(self, connection: sqlite3.Connection, deletions: int) -> list[Rater]:
        return raters(self._raters.total(connection, deletions))

    def agreement_with_judges(self, connection: sqlite3.Connection, deletions: int) -> tuple[int, int]:
        """Return on how many answers judges and people agree, and how many answers both found good or bad."""
        ratings = self._ratings.total(connection, deletions)
        return ratings.get("judged_as_rated", 0), ratings.get("judged_and_rated", 0)


class _Sums(Generic[Figure]):
    """Figures of conversations, and their sums."""

    def __init__(
        self,
        count: Callable[[Sequence[Feedback], Iterable[CompletionPlace]], Counter[Figure]],
        *,
        scaled: bool,
    ) -> None:
        """``count`` takes what was said in a conversation; ``scaled``: as training hears it."""
        self._count = count
        self._scaled = scaled
        self._changes = Changes(scaled=scaled)
        self._figures: dict[str, Counter[Figure]] = {}
        """By conversation."""
        self._total: Counter[Figure] = Counter()

    def total(self, connection: sqlite3.Connection, deletions: int) -> Mapping[Figure, int]:
        with self._changes.look(connection, deletions) as change:
            if change:
                self._update(connection, change)
        return self._total

    def _update(self, connection: sqlite3.Connection, change: Recount) -> None:
        if change.anew:
            self._figures, self._total = {}, Counter()
        used = for_training(change.feedback, {}, change.habits) if self._scaled else change.feedback
        places = feedback.places_by_conversation(connection, change.conversations, used)
        by_conversation: dict[str, list[Feedback]] = defaultdict(list)
        for statement in used:
            by_conversation[statement.conversation_id].append(statement)
        for name in change.conversations:
            self._total.subtract(self._figures.pop(name, {}))
            if figures := +self._count(by_conversation[name], places.get(name, ())):
                self._figures[name] = figures
                self._total.update(figures)
