"""Counts of ratings, kept up to date by reading what changed, without any text.

Reading all ratings again after each new one takes a second at 20,000. A tally reads the conversations whose feedback
changed since its last look, and no message of theirs, save where only the text can tell: the parameters of a text
prompt, the contexts of two compared answers that were logged differently, and what the user said next.

Grades are counted on their rater's own scale, so one more grade may move others of that rater between good and bad.
Those are read again, too: the ones between the old mean and the new, and all that share a conversation with other
raters. Deleting anything starts a tally from scratch.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import add, sub
from typing import Any, NamedTuple

from burnish.proxy.log import feedback
from burnish.proxy.log.queries import next_turn
from burnish.proxy.log.ratings import Effective, Habit, effective, for_training, grades_of, habits_of
from burnish.proxy.log.store import Reader
from burnish.proxy.log.usability import taught, untaught, vain, withheld
from burnish.proxy.records import Fault, Feedback, Voice, answer_named


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


class RatingCounts(NamedTuple):
    """Counts of all ratings."""

    ready: ReadyCounts
    """Those that were not learnt yet."""
    all: ReadyCounts
    """The same if nothing had been learnt yet."""
    left_out: Mapping[Fault, int]
    """Rated answers that were not learnt and cannot be."""


class RatingSummary(NamedTuple):
    """A rated answer, as far as counts need it."""

    feedback_ids: tuple[str, ...]
    """The first one is the rating's own."""
    sign: int
    """1: good, -1: bad, 0: neither, or not rated."""
    commented: bool
    paired: bool
    fault: Fault | None


class _Position(NamedTuple):
    """How far the log was read: how often something had been deleted, and the last row of each table."""

    deletions: int
    feedback: int
    undo: int
    completion: int


class _Conversation(NamedTuple):
    """A conversation's share of the counts."""

    summaries: tuple[RatingSummary, ...]
    grades: Mapping[Voice, Counter[float]]
    """By rater."""


class RatingTally:
    """Counts ratings as training uses them. One thread at a time."""

    def __init__(
        self,
        rater_weights: Mapping[str, float],
        *,
        next_turns: bool,
        scrub: bool = True,
        teachers: Collection[str] = (),
    ) -> None:
        """``next_turns``: what the user said next counts as the comment on a bad answer that has none.

        ``scrub``: an exchange that holds a key or a token can't be learnt from. ``teachers``: the further upstreams
        whose answers can.
        """
        self._scrub = scrub
        self._teachers = teachers
        self._rater_weights = rater_weights
        self._next_turns = next_turns
        self._position: _Position | None = None
        self._conversations: dict[str, _Conversation] = {}
        self._watched: set[str] = set()
        """Conversations where a new completion can change what a rating is about."""
        self._grades: dict[Voice, Counter[float]] = {}
        self._graded: dict[Voice, dict[float | None, set[str]]] = {}
        """By rater and grade: the conversations. None: several people rated in them."""
        self._counted: dict[str, RatingCounts] = {}
        """By conversation, for ``_learnt`` and ``_since``."""
        self._total = NO_RATINGS
        self._learnt: Collection[str] = ()
        self._since = ""

    def counts(
        self, connection: sqlite3.Connection, deletions: int, learnt: Collection[str], since: str
    ) -> RatingCounts:
        """Read what changed and return all counts.

        ``deletions`` grows whenever rows are deleted. ``learnt``: feedback ids; the same object as long as it is
        unchanged. ``since``: ratings with feedback after this moment are new, as the 26 characters of an id; "" = all.
        """
        if learnt is not self._learnt or since != self._since:
            self._learnt, self._since = learnt, since
            self._recount()
        try:
            position = _position(connection, deletions)
            if position != self._position:
                self._update(connection, position)
        except BaseException:
            self._position = None
            raise
        self._position = position
        return self._total

    def _update(self, connection: sqlite3.Connection, position: _Position) -> None:
        before = self._position
        if before is None or before.deletions != position.deletions:
            self._conversations, self._watched, self._grades, self._graded = {}, set(), {}, {}
            self._recount()
            self._read(connection, None)
        elif changed := self._changed(connection, before):
            self._read(connection, changed)

    def _changed(self, connection: sqlite3.Connection, since: _Position) -> set[str]:
        """Return the conversations with something new."""
        rows = connection.execute(
            """SELECT conversation_id FROM feedback WHERE rowid > ?
            UNION SELECT conversation_id FROM undo JOIN feedback ON feedback.id = undo.feedback WHERE undo.rowid > ?""",
            (since.feedback, since.undo),
        )
        changed = {conversation for (conversation,) in rows}
        if self._watched:
            rows = connection.execute(
                "SELECT DISTINCT conversation_id FROM completion WHERE n > ?", (since.completion,)
            )
            changed |= self._watched & {conversation for (conversation,) in rows}
        return changed

    def _read(self, connection: sqlite3.Connection, conversations: set[str] | None) -> None:
        """Read the feedback in some conversations again (None: in all), and in those that follow from it."""
        given = feedback.given_in(connection, conversations)
        names = conversations if conversations is not None else {each.conversation_id for each in given}
        before = habits_of(self._grades)
        self._set_grades(names, given)
        habits = habits_of(self._grades)
        more = set[str]() if conversations is None else self._moved(before, habits) - names
        if more:
            given += feedback.given_in(connection, more)
        used = for_training(given, self._rater_weights, habits)
        ratings = effective(used, feedback.places_of(connection, names | more, used))
        by_conversation: dict[str, list[RatingSummary]] = defaultdict(list)
        for conversation, summary in self._summaries(connection, ratings):
            by_conversation[conversation].append(summary)
        for name in names | more:
            self._replace(name, by_conversation.get(name, ()))

    def _set_grades(self, names: Iterable[str], given: Sequence[Feedback]) -> None:
        """Replace the grades and the raters of some conversations, of which all feedback is given."""
        by_conversation: dict[str, list[Feedback]] = defaultdict(list)
        for each in given:
            by_conversation[each.conversation_id].append(each)
        for name in names:
            own = by_conversation[name]
            old = self._conversations.get(name, NOTHING_RATED)
            for rater, counter in old.grades.items():
                self._grades[rater].subtract(counter)
                for grade in (None, *counter):
                    self._graded[rater].get(grade, set()).discard(name)
            grades = grades_of(own)
            several = len({each.draft.voice for each in own if each.draft.reward is not None}) > 1
            for rater, counter in grades.items():
                self._grades.setdefault(rater, Counter()).update(counter)
                for grade in (None,) if several else counter:
                    self._graded.setdefault(rater, {}).setdefault(grade, set()).add(name)
            self._conversations[name] = old._replace(grades=grades)
            if self._next_turns or any(each.draft.scope != "completion" for each in own):
                self._watched.add(name)

    def _moved(self, before: Mapping[Voice, Habit], after: Mapping[Voice, Habit]) -> set[str]:
        """Return the conversations whose grades may have changed sides because their rater's habit changed."""
        moved: set[str] = set()
        for rater in before.keys() | after.keys():
            if before.get(rater) == after.get(rater):
                continue
            # Without a habit a grade counts as it is: good above 0.
            low, high = sorted(habits[rater].mean if rater in habits else 0.0 for habits in (before, after))
            for grade, conversations in self._graded.get(rater, {}).items():
                if grade is None or low <= grade <= high:
                    moved |= conversations
        return moved

    def _summaries(
        self, connection: sqlite3.Connection, ratings: Mapping[str, Effective]
    ) -> Iterable[tuple[str, RatingSummary]]:
        facts = feedback.facts_of(connection, {answer_named(name)[0] for name in ratings})
        reader = Reader(connection)
        for answer, rating in ratings.items():
            name, choice = answer_named(answer)
            if name not in facts:
                continue
            conversation, node, fault, credential, table = facts[name]
            reward = rating.reward or 0.0
            comment = rating.comment
            if self._next_turns and reward < 0 and not comment and not choice:
                comment = next_turn(connection, name)
            others = (reader.worse(node, each) for each in rating.preferred_over)
            worse = taught(others, scrub=self._scrub, teachers=self._teachers)
            paired = bool(rating.correction or worse)
            yield (
                conversation,
                RatingSummary(
                    feedback_ids=rating.feedback_ids,
                    sign=(reward > 0) - (reward < 0),
                    commented=comment is not None,
                    paired=paired,
                    fault=fault
                    or untaught(table, self._teachers)
                    or vain(rating, paired=paired)
                    or withheld(credential, comment, rating.correction, scrub=self._scrub),
                ),
            )

    def _replace(self, name: str, summaries: Sequence[RatingSummary]) -> None:
        """Replace what a conversation adds to the counts."""
        old = self._counted.pop(name, NO_RATINGS)
        new = NO_RATINGS
        if summaries or self._conversations[name].grades:
            self._conversations[name] = self._conversations[name]._replace(summaries=tuple(summaries))
            new = self._counted[name] = counted(summaries, self._learnt, self._since)
        else:
            del self._conversations[name]
        self._total = _combined(add, _combined(sub, self._total, old), new)

    def _recount(self) -> None:
        """Count all that was read, from the beginning."""
        self._total = NO_RATINGS
        self._counted = {
            name: counted(each.summaries, self._learnt, self._since)
            for name, each in self._conversations.items()
        }
        for counts in self._counted.values():
            self._total = _combined(add, self._total, counts)


NO_RATINGS = RatingCounts(ReadyCounts(), ReadyCounts(), {})
NOTHING_RATED = _Conversation((), {})


def counted(rated: Sequence[RatingSummary], learnt: Collection[str], since: str) -> RatingCounts:
    """Count some rated answers; see ``RatingTally.counts``."""
    usable = [each for each in rated if each.fault is None]
    unlearnt = [each for each in usable if each.feedback_ids[0] not in learnt]
    left_out = Counter(each.fault for each in rated if each.fault and each.feedback_ids[0] not in learnt)
    return RatingCounts(_ready(unlearnt, since), _ready(usable, since), left_out)


def _ready(rated: Sequence[RatingSummary], since: str) -> ReadyCounts:
    def opinions(some: Iterable[RatingSummary]) -> int:
        return len({each.feedback_ids[0] for each in some})

    return ReadyCounts(
        new=opinions(
            each for each in rated if any(name.partition("_")[2] > since for name in each.feedback_ids)
        ),
        good=opinions(each for each in rated if each.sign > 0),
        bad=opinions(each for each in rated if each.sign < 0),
        neutral=opinions(each for each in rated if each.sign == 0),
        comments=sum(each.commented and each.sign <= 0 for each in rated),
        pairs=sum(each.paired for each in rated),
    )


def _combined(combine: Callable[[Any, Any], Any], one: RatingCounts, another: RatingCounts) -> RatingCounts:
    """``combine`` adds or subtracts."""
    return RatingCounts(
        ReadyCounts(*map(combine, one.ready, another.ready)),
        ReadyCounts(*map(combine, one.all, another.all)),
        combine(Counter(one.left_out), Counter(another.left_out)) if another.left_out else one.left_out,
    )


def _position(connection: sqlite3.Connection, deletions: int) -> _Position:
    latest = connection.execute(
        """SELECT coalesce((SELECT max(rowid) FROM feedback), 0), coalesce((SELECT max(rowid) FROM undo), 0),
        coalesce((SELECT max(n) FROM completion), 0)"""
    ).fetchone()
    return _Position(deletions, *latest)
