"""Rated answers: what counts of the feedback on each without their texts, and those texts as a stream.

A plan chooses by the first among all ratings, and reads the second of those that a run will use.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from burnish.proxy.log import feedback
from burnish.proxy.log.faults import Rules, fault_of_choice, vain
from burnish.proxy.log.ratings import Effective
from burnish.proxy.log.side_requests import is_side_request
from burnish.proxy.log.store import NODE, Reader, as_json, select
from burnish.proxy.messages import SYSTEM_ROLES
from burnish.proxy.records import Answerer, RatedCompletion, answer_named

DEFAULT_RULES = Rules()
AT_ONCE = 128
"""Answers that are read together."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Rating:
    """What counts of the feedback on an answer, and what decides whether and how it is learnt from."""

    answer: str
    """As of ``records.answer_name``."""
    conversation_id: str
    served: Answerer
    instructed: bool
    """Whether burnish added instructions to the prompt."""
    effective: Effective
    worse: tuple[str, ...]
    """Names of the answers that it was preferred over, of those that can be learnt from."""
    fault: str | None
    """Why it can't be learnt from: a ``Fault``, or the words of ``Rules.text_faults``."""
    comment_fault: str | None = None
    """Why its comment alone can't."""

    @property
    def completion_id(self) -> str:
        return answer_named(self.answer)[0]

    @property
    def reward(self) -> float:
        """0 when it was only commented on, corrected or compared."""
        return self.effective.reward or 0.0

    @property
    def comment(self) -> str | None:
        """None also if the comment can't be learnt from."""
        return None if self.comment_fault else self.effective.comment

    @property
    def correction(self) -> str | None:
        return self.effective.correction

    @property
    def feedback_ids(self) -> tuple[str, ...]:
        return self.effective.feedback_ids

    @property
    def rating_id(self) -> str:
        """As of RatedCompletion."""
        return self.feedback_ids[0]


def ratings(connection: sqlite3.Connection, rules: Rules = DEFAULT_RULES) -> list[Rating]:
    """Return the effective ratings of all answers as training uses them (``ratings.for_training``), earliest first."""
    effective = feedback.effective_ratings(connection, rater_weights=rules.rater_weights)
    return [*weighed(connection, effective, rules)]


def weighed(
    connection: sqlite3.Connection, effective: Mapping[str, Effective], rules: Rules
) -> Iterator[Rating]:
    """Yield effective ratings with the facts of their answers, as far as the log has these, earliest first."""
    for answers in _parts(sorted(effective)):
        by_id = feedback.facts_of(connection, {answer_named(answer)[0] for answer in answers})
        reader = Reader(connection)
        for answer in answers:
            name, choice = answer_named(answer)
            if name not in by_id:
                continue
            facts = by_id[name]
            fault: str | None = facts.fault
            if choice and facts.choices:
                fault = fault_of_choice(facts.fault, reader.reason_of(facts.choices, choice))
            rating = effective[answer]
            if rules.next_turns and (rating.reward or 0.0) < 0 and not rating.comment and not choice:
                rating = replace(rating, comment=next_turn(connection, name))
            worse = tuple(
                rival
                for rival in rating.preferred_over
                if (rejected := reader.worse(facts.node, answer, rival))
                and not rules.fault_of_rejected(rejected)
            )
            fault = (
                fault
                or rules.fault(
                    facts.served.upstream_table, facts.credential, rating.comment, rating.correction
                )
                or vain(rating, paired=bool(rating.correction or worse))
            )
            comment_fault: str | None = None
            if facts.reply is not None and not fault:
                exchange = reader.exchange(facts.node, facts.reply, facts.choices, choice)
                fault, comment_fault = rules.text_faults(rating, *exchange)
            yield Rating(
                answer,
                facts.conversation,
                facts.served,
                facts.instructed,
                rating,
                worse,
                fault,
                comment_fault,
            )


def rated(
    connection: sqlite3.Connection,
    ratings: Iterable[Rating],
    use: Callable[[Iterator[RatedCompletion]], Result],
) -> Result:
    """Give rated answers with context, parameters and reply to ``use``, some at a time; return what it returns.

    Answers that were deleted meanwhile are left out.
    """
    return use(_rated(connection, ratings))


def _rated(connection: sqlite3.Connection, ratings: Iterable[Rating]) -> Iterator[RatedCompletion]:
    for part in _parts(ratings):
        names = as_json({rating.completion_id for rating in part})
        rows = select(connection, "WHERE id IN (SELECT value FROM json_each(?))", (names,))
        reader = Reader(connection)
        reader.load(rows)
        by_id = {row[0]: row for row in rows}
        for rating in part:
            if row := by_id.get(rating.completion_id):
                yield with_texts(reader, row, rating)


def with_texts(reader: Reader, row: Any, rating: Rating) -> RatedCompletion:
    """Return a completion, by its row, with what counts of its feedback."""
    choice = answer_named(rating.answer)[1]
    worse = (reader.worse(row[NODE], rating.answer, answer) for answer in rating.worse)
    return RatedCompletion(
        completion=reader.completion(row, rating.effective.reward, full=True).with_choice(choice),
        reward=rating.reward,
        weight=rating.effective.weight,
        feedback_ids=rating.feedback_ids,
        comment=rating.effective.comment,
        correction=rating.correction,
        worse=tuple(answer.reply for answer in worse if answer),
        fault=rating.fault,
        choice=choice,
    )


def next_turn(connection: sqlite3.Connection, completion_id: str) -> str | None:
    """Return the next message of the user after a reply; None if the conversation didn't continue from it."""
    reader = Reader(connection)
    for row in select(connection, "WHERE continues = ? AND begins_turn ORDER BY n", (completion_id,)):
        later = reader.completion(row, full=True)
        if later.prompt and not is_side_request(later):
            return later.prompt
    return None


def all_have_system_messages(connection: sqlite3.Connection, completion_ids: Iterable[str]) -> bool:
    """Return whether all contexts begin with a system message."""
    (verdict,) = connection.execute(
        """WITH RECURSIVE way (parent, content) AS (
            SELECT parent, content FROM completion JOIN node ON node.id = completion.node
                WHERE completion.id IN (SELECT value FROM json_each(?))
            UNION
            SELECT node.parent, node.content FROM way JOIN node ON node.id = way.parent
        ) SELECT NOT EXISTS (
            SELECT 1 FROM way JOIN content ON content.id = way.content WHERE way.parent = 0
            AND coalesce(json_extract(CAST(body AS TEXT), '$.role'), '') NOT IN (SELECT value FROM json_each(?))
        )""",
        (as_json(completion_ids), as_json(SYSTEM_ROLES)),
    ).fetchone()
    return bool(verdict)


def longest_prompt(connection: sqlite3.Connection, completion_ids: Iterable[str]) -> int:
    """Return the most tokens that the engine counted in a prompt; 0 if it counted none."""
    (tokens,) = connection.execute(
        "SELECT max(prompt_tokens) FROM completion WHERE id IN (SELECT value FROM json_each(?))",
        (as_json(completion_ids),),
    ).fetchone()
    return tokens or 0


def in_contexts_of(
    connection: sqlite3.Connection, completion_ids: Iterable[str], sibling_ids: Iterable[str]
) -> set[str]:
    """Return those completions that answer the context of one of ``sibling_ids``."""
    rows = connection.execute(
        """SELECT id FROM completion WHERE id IN (SELECT value FROM json_each(?)) AND node IN (
            SELECT node FROM completion WHERE id IN (SELECT value FROM json_each(?))
        )""",
        (as_json(completion_ids), as_json(sibling_ids)),
    )
    return {name for (name,) in rows}


Item = TypeVar("Item")


def _parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    remainder = iter(items)
    while part := list(islice(remainder, AT_ONCE)):
        yield part
