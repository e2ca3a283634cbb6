"""Whether feedback can teach. Pure.

The answer to a rating, lists and training ask the same functions. Reasons that only a run finds are in its version
(``learner.version_details``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from burnish.config.config import Config
from burnish.config.hyperparameters import OBJECTIVES
from burnish.proxy.log.faults import FAULTS, Message, Rules, fault_of_choice, in_words
from burnish.proxy.log.ratings import PEOPLE, Effective
from burnish.proxy.log.transfer import Usable
from burnish.proxy.records import Completion, CoveredAnswer, Fault, FeedbackDraft, RejectedAnswer, Usability
from burnish.training.presets import NOTHING, teaches
from burnish.training.teachable import uncommentable, unteachable

NEUTRAL = "a rating in the middle teaches only once you have given eight grades that differ"
ON_GOOD = "only comments on answers that weren't good do"
NO_WEIGHT = "train.rater_weights gives this rater no weight"
OVERRULED = "a person said something of this answer, which counts instead of a judge or a signal"


@dataclass(frozen=True, slots=True)
class _StatementPart:
    """One part of a statement, as ``teaches`` takes it."""

    reward: float = 0.0
    comment: str | None = None
    correction: str | None = None
    worse: Sequence[Mapping[str, Any]] = ()


def obstacle_of(completion: Completion, rules: Rules) -> str | None:
    """Return why no rating of a completion can teach, as far as it was read."""
    if fault := _fault(completion, rules):
        return in_words(fault, completion.served.upstream_table, completion.ended)
    return unteachable(completion.messages, completion.reply or {})


def _fault(completion: Completion, rules: Rules, *texts: str | None) -> Fault | None:
    table, holds_credential = completion.served.upstream_table, completion.ended.holds_credential
    fault = fault_of_choice(completion.fault, completion.ended.finish_reason)
    return fault or rules.fault(table, holds_credential, *texts)


def rules_of(config: Config) -> Rules:
    train = config.train
    return Rules(
        train.rater_weights, train.objective, config.log.scrub, config.teachers, train.next_turn, text_faults
    )


def text_faults(
    rating: Effective, messages: Sequence[Message], reply: Message
) -> tuple[str | None, str | None]:
    """As of ``log.faults.TextFaults``: why no part of what counts can teach, and why its comment can't."""
    obstacles: list[str | None] = []
    of_comment = None
    if rating.reward is not None or rating.correction or rating.preferred_over:
        obstacles.append(unteachable(messages, reply))
    if rating.comment and (rating.reward or 0.0) <= 0:
        of_comment = uncommentable(messages, reply, rating.comment)
        obstacles.append(of_comment)
    return (obstacles[0] if obstacles and all(obstacles) else None), of_comment


def usability_by(rules: Rules) -> Usable:
    """Return the function that the import of records asks."""
    return partial(usability, rules=rules)


def usability(
    draft: FeedbackDraft,
    completion: Completion,
    worse: RejectedAnswer | None,
    covered_answers: Sequence[CoveredAnswer] = (),
    *,
    rules: Rules,
) -> Usability:
    """Return whether feedback can teach something about a completion that it names or covers.

    ``worse``: what the completion was preferred over, if it answers the same context. ``covered_answers``: the other
    answers that a rating covers.
    """
    if not rules.rater_weights.get(draft.rater, 1.0):
        return Usability(usable=False, reason=NO_WEIGHT)
    if overruled(draft, completion):
        return Usability(usable=False, reason=OVERRULED)
    obstacles, notes = dict(_obstacles(draft, completion, worse, rules)), []
    if draft.reward is not None:
        reasons = [obstacles["rating"], *(_why_not(answer, rules) for answer in covered_answers)]
        faults = [why for why in reasons if why]
        if len(faults) < len(reasons):
            obstacles["rating"] = None
            if faults:
                notes.append(f"{len(faults)} of {len(reasons)} answers can't teach: {_joined(faults)}")
            elif not draft.reward:
                notes.append(NEUTRAL)
        else:
            obstacles["rating"] = _joined(faults)
    if all(obstacles.values()):
        return Usability(usable=False, reason=_joined(filter(None, obstacles.values())))
    notes += [f"the {part} can't teach: {why}" for part, why in obstacles.items() if why]
    return Usability(usable=True, reason="; ".join(notes) or None)


def overruled(draft: FeedbackDraft, completion: Completion) -> bool:
    """Whether feedback yields to people, and a person said something of the same answer that counts."""
    return draft.yields and any(
        applied_feedback.counts
        and applied_feedback.feedback.draft.source in PEOPLE
        and (applied_feedback.feedback.draft.choice == draft.choice or draft.completion_id != completion.id)
        for applied_feedback in completion.feedback
    )


def _why_not(answer: CoveredAnswer, rules: Rules) -> str | None:
    credential = answer.fault == "credential"
    fault = (None if credential else answer.fault) or rules.fault(answer.upstream_table, credential)
    if fault:
        return in_words(fault, answer.upstream_table)
    return None if answer.reply is None else unteachable(answer.messages, answer.reply)


def _obstacles(
    draft: FeedbackDraft, completion: Completion, worse: RejectedAnswer | None, rules: Rules
) -> Iterator[tuple[str, str | None]]:
    """Yield each part of a statement about a completion, and why it can't teach."""
    answer = completion.with_choice(draft.choice)
    messages, reply = answer.messages, answer.reply or {}
    rating = (completion.rating_of(draft.choice) if draft.reward is None else draft.reward) or 0.0

    def obstacle(statement: _StatementPart, *reasons: str | None) -> str | None:
        if why := next(filter(None, reasons), None):
            return why
        learns = OBJECTIVES if rules.objective == "auto" else (rules.objective,)
        return (
            None
            if any(teaches(statement, objective) for objective in learns)
            else NOTHING.format(rules.objective)
        )

    fault = _fault(answer, rules, draft.comment, draft.correction)
    broken = in_words(fault, answer.served.upstream_table, answer.ended) if fault else None
    unfit = broken or obstacle_of(answer, rules)
    if draft.reward is not None:
        yield "rating", obstacle(_StatementPart(rating or 1.0), unfit)
    if draft.completion_id != completion.id:
        return
    if draft.comment:
        on_good = ON_GOOD if rating > 0 else None
        statement = _StatementPart(comment=draft.comment)
        yield ("comment", obstacle(statement, broken, on_good, uncommentable(messages, reply, draft.comment)))
    if draft.correction:
        yield "correction", obstacle(_StatementPart(correction=draft.correction), unfit)
    if draft.preferred_over:
        yield (
            "preference",
            obstacle(_StatementPart(worse=(worse.reply,) if worse else ()), unfit, _unfit(worse, rules)),
        )


def _unfit(worse: RejectedAnswer | None, rules: Rules) -> str | None:
    if worse is None:
        return FAULTS["other_prompt"]
    if fault := rules.fault_of_rejected(worse):
        return in_words(fault, worse.upstream_table)
    return unteachable((), worse.reply)


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))
