"""Whether feedback can teach. Pure.

The answer to a rating, lists and training ask the same functions. Reasons that only a run finds are in its version
(``learner.fates``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from burnish.proxy.log.credentials import holds_credential
from burnish.proxy.log.ratings import PEOPLE, Effective
from burnish.proxy.records import Beside, Completion, Fault, FeedbackDraft, Outcome, Usability, Worse
from burnish.training.job import OBJECTIVES, Objective
from burnish.training.presets import NOTHING, teaches
from burnish.training.teachable import uncommentable, unteachable

TEXT_SURFACES = ("completions", "ollama_generate")
OWN_PROMPT = ("raw", "template", "suffix", "context")
"""With these parameters of a text prompt the model sees another text than the logged messages."""

FAULTS: Mapping[Fault, str] = {
    "incomplete": "the answer was cut off or never came",
    "error": "the engine answered with an error",
    "no_text": "the question or the answer has no text",
    "own_prompt": "the prompt was not a chat: raw, with a template or suffix, or after a context of tokens",
    "credential": "the exchange or the feedback holds a key or a token (log.scrub)",
    "other_prompt": "the two answers aren't to the same prompt",
    "not_teaching": "a further upstream gave the answer: to learn from it, if its terms allow that, set "
    "teaches = true in [upstreams.NAME]",
}
NEUTRAL = "a rating in the middle teaches only once you have given eight grades that differ"
ON_GOOD = "only comments on answers that weren't good do"
NO_WEIGHT = "train.rater_weights gives this rater no weight"
OVERRULED = "a person said something of this answer, which counts instead of a judge or a signal"


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of training that decide what can teach."""

    rater_weights: Mapping[str, float]
    objective: Objective | str
    """"auto": any."""
    scrub: bool
    """``log.scrub``."""
    teachers: Collection[str] = ()
    """The further upstreams with ``teaches``."""


@dataclass(frozen=True, slots=True)
class _Said:
    """One part of a statement, as ``teaches`` takes it."""

    reward: float = 0.0
    comment: str | None = None
    correction: str | None = None
    worse: Sequence[Mapping[str, Any]] = ()


def fault_of(
    outcome: Outcome, status: int | None, *, has_text: bool, params: Mapping[str, Any]
) -> Fault | None:
    """Return why nothing can be learnt from an answer. ``params``: of a surface in TEXT_SURFACES, else empty."""
    if outcome != "complete":
        return "incomplete"
    if status != HTTPStatus.OK:
        return "error"
    if not has_text:
        return "no_text"
    return "own_prompt" if any(params.get(name) for name in OWN_PROMPT) else None


def obstacle_of(completion: Completion, rules: Rules) -> str | None:
    """Return why no rating of a completion can teach, as far as it was read."""
    if fault := _fault(completion, rules):
        return in_words(fault, completion.served.upstream_table)
    return unteachable(completion.messages, completion.reply or {})


def in_words(fault: Fault, upstream_table: str | None) -> str:
    return FAULTS[fault].replace("NAME", upstream_table or "NAME")


def _fault(completion: Completion, rules: Rules, *said: str | None) -> Fault | None:
    return (
        completion.fault
        or untaught(completion.served.upstream_table, rules.teachers)
        or withheld(completion.ended.holds_credential, *said, scrub=rules.scrub)
    )


def untaught(upstream_table: str | None, teachers: Collection[str]) -> Fault | None:
    """Return the fault of an answer of a further upstream that isn't among those that teach."""
    return None if upstream_table is None or upstream_table in teachers else "not_teaching"


def taught(
    worse: Iterable[Worse | None], *, scrub: bool, teachers: Collection[str]
) -> tuple[dict[str, Any], ...]:
    """Return the replies that another one was preferred over, without those that can't be learnt from."""
    return tuple(
        each.reply
        for each in worse
        if each and not (untaught(each.upstream_table, teachers) or withheld(worse=each.reply, scrub=scrub))
    )


def withheld(
    holds: bool = False, *said: str | None, worse: Mapping[str, Any] | None = None, scrub: bool
) -> Fault | None:
    """Return the fault of an exchange that holds a key or a token, or of feedback that does, if ``scrub`` is on."""
    texts = [each.encode() for each in said if each] + ([orjson.dumps(worse)] if worse else [])
    return "credential" if scrub and (holds or any(map(holds_credential, texts))) else None


def vain(rating: Effective, *, paired: bool) -> Fault | None:
    """Return why the feedback on an answer says nothing that can be learnt."""
    said = rating.reward is not None or rating.comment or paired
    return "other_prompt" if rating.preferred_over and not said else None


def usability(
    draft: FeedbackDraft,
    completion: Completion,
    worse: Worse | None,
    rules: Rules,
    beside: Sequence[Beside] = (),
) -> Usability:
    """Return whether feedback can teach something about a completion that it names or covers.

    ``worse``: what the completion was preferred over, if it answers the same context. ``beside``: the other answers
    that a rating covers.
    """
    if not rules.rater_weights.get(draft.rater, 1.0):
        return Usability(usable=False, reason=NO_WEIGHT)
    if overruled(draft, completion):
        return Usability(usable=False, reason=OVERRULED)
    obstacles, notes = dict(_obstacles(draft, completion, worse, rules)), []
    if draft.reward is not None:
        each = [obstacles["rating"], *(_why_not(other, rules) for other in beside)]
        found = [why for why in each if why]
        if len(found) < len(each):
            obstacles["rating"] = None
            if found:
                notes.append(f"{len(found)} of {len(each)} answers can't teach: {_joined(found)}")
            elif not draft.reward:
                notes.append(NEUTRAL)
        else:
            obstacles["rating"] = _joined(found)
    if all(obstacles.values()):
        return Usability(usable=False, reason=_joined(filter(None, obstacles.values())))
    notes += [f"the {part} can't teach: {why}" for part, why in obstacles.items() if why]
    return Usability(usable=True, reason="; ".join(notes) or None)


def overruled(draft: FeedbackDraft, completion: Completion) -> bool:
    """Whether feedback yields to people, and a person said something of the same answer that counts."""
    return draft.yields and any(
        each.counts
        and each.feedback.draft.source in PEOPLE
        and (each.feedback.draft.choice == draft.choice or draft.completion_id != completion.id)
        for each in completion.feedback
    )


def _why_not(other: Beside, rules: Rules) -> str | None:
    fault = None if other.fault == "credential" and not rules.scrub else other.fault
    fault = fault or untaught(other.upstream_table, rules.teachers)
    return in_words(fault, other.upstream_table) if fault else None


def _obstacles(
    draft: FeedbackDraft, completion: Completion, worse: Worse | None, rules: Rules
) -> Iterator[tuple[str, str | None]]:
    """Yield each part of a statement about a completion, and why it can't teach."""
    answer = completion.with_choice(draft.choice)
    messages, reply, tools = answer.messages, answer.reply or {}, answer.params.get("tools") or ()
    rating = (completion.rating_of(draft.choice) if draft.reward is None else draft.reward) or 0.0

    def obstacle(said: _Said, *found: str | None) -> str | None:
        if why := next(filter(None, found), None):
            return why
        learns = OBJECTIVES if rules.objective == "auto" else (rules.objective,)
        return None if any(teaches(said, each) for each in learns) else NOTHING.format(rules.objective)

    fault = _fault(answer, rules, draft.comment, draft.correction)
    broken = in_words(fault, answer.served.upstream_table) if fault else None
    unfit = broken or obstacle_of(answer, rules)
    if draft.reward is not None:
        yield "rating", obstacle(_Said(rating or 1.0), unfit)
    if draft.completion_id != completion.id:
        return
    if draft.comment:
        on_good = ON_GOOD if rating > 0 else None
        said = _Said(comment=draft.comment)
        yield (
            "comment",
            obstacle(said, broken, on_good, uncommentable(messages, tools, reply)),
        )
    if draft.correction:
        yield "correction", obstacle(_Said(correction=draft.correction), unfit)
    if draft.preferred_over:
        yield (
            "preference",
            obstacle(_Said(worse=(worse.reply,) if worse else ()), unfit, _unfit(worse, rules)),
        )


def _unfit(worse: Worse | None, rules: Rules) -> str | None:
    if worse is None:
        return FAULTS["other_prompt"]
    if fault := untaught(worse.upstream_table, rules.teachers) or withheld(
        worse=worse.reply, scrub=rules.scrub
    ):
        return in_words(fault, worse.upstream_table)
    return unteachable((), worse.reply)


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))
