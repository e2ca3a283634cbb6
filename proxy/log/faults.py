"""Why nothing can be learnt from an answer or from feedback on it, as far as the log tells. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson

from burnish.proxy.log.credentials import holds_credential
from burnish.proxy.log.ratings import Effective
from burnish.proxy.records import Fault, Outcome, RejectedAnswer

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


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide what can teach, and how."""

    rater_weights: Mapping[str, float] = field(default_factory=dict)
    """Others have the weight 1."""
    objective: str = "auto"
    """"auto": any."""
    scrub: bool = True
    """An exchange with a key or a token can't teach (``log.scrub``)."""
    teachers: Collection[str] = ()
    """The further upstreams with ``teaches``."""
    next_turns: bool = False
    """The next message of the user is the comment on a bad answer that has none."""


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


def in_words(fault: Fault, upstream_table: str | None) -> str:
    return FAULTS[fault].replace("NAME", upstream_table or "NAME")


def untaught(upstream_table: str | None, teachers: Collection[str]) -> Fault | None:
    """Return the fault of an answer of a further upstream that isn't among those that teach."""
    return None if upstream_table is None or upstream_table in teachers else "not_teaching"


def taught(worse: Iterable[RejectedAnswer | None], rules: Rules) -> tuple[dict[str, Any], ...]:
    """Return the replies that another one was preferred over, without those that can't be learnt from."""
    return tuple(
        answer.reply
        for answer in worse
        if answer
        and not (
            untaught(answer.upstream_table, rules.teachers) or withheld(worse=answer.reply, scrub=rules.scrub)
        )
    )


def withheld(
    holds: bool = False, *statements: str | None, worse: Mapping[str, Any] | None = None, scrub: bool
) -> Fault | None:
    """Return the fault of an exchange that holds a key or a token, or of feedback that does, if ``scrub`` is on."""
    texts = [statement.encode() for statement in statements if statement] + (
        [orjson.dumps(worse)] if worse else []
    )
    return "credential" if scrub and (holds or any(map(holds_credential, texts))) else None


def vain(rating: Effective, *, paired: bool) -> Fault | None:
    """Return why the feedback on an answer says nothing that can be learnt."""
    lesson = rating.reward is not None or rating.comment or paired
    return "other_prompt" if rating.preferred_over and not lesson else None
