"""Why nothing can be learnt from an answer or from feedback on it, as far as the log tells. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson

from burnish.proxy.log.credentials import holds_credential
from burnish.proxy.log.ratings import Effective
from burnish.proxy.records import CompletionEnd, Fault, Outcome, RejectedAnswer
from burnish.proxy.surfaces.ends import end_of

TEXT_SURFACES = ("completions", "ollama_generate")
OWN_PROMPT: Mapping[str, Fault] = {
    "echo": "echo", "suffix": "suffix", "raw": "own_prompt", "template": "own_prompt", "context": "own_prompt",
}  # fmt: skip
"""Parameters of a text prompt with which the model sees or gives another text than the logged one."""

ERROR_CHARACTERS = 200
"""Of an error that is named in a reason."""

FAULTS: Mapping[str, str] = {
    "incomplete": "the answer was cut off or never came",
    "error": "the engine answered with an error",
    "withheld": "a filter or a refusal ended the answer",
    "unknown_end": "the answer ended for a reason that burnish doesn't know",
    "no_text": "the question or the answer has no text",
    "own_prompt": "the prompt was not a chat: raw, with a template, or after a context of tokens",
    "echo": "the answer repeats its prompt (echo)",
    "suffix": "the answer fills the gap before a suffix, so it answers no message",
    "credential": "the exchange or the feedback holds a key or a token (log.scrub)",
    "other_prompt": "the two answers aren't to the same prompt",
    "not_teaching": "a further upstream gave the answer: to learn from it, if its terms allow that, set "
    "teaches = true in [upstreams.NAME]",
}


Message = Mapping[str, Any]
TextFaults = Callable[[Effective, Sequence[Message], Message], tuple[str | None, str | None]]
"""Returns in words why nothing can be learnt from the feedback on an answer, by its context and reply, and why nothing
from the comment in it."""


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
    text_faults: TextFaults = lambda rating, messages, reply: (None, None)

    def fault(self, upstream_table: str | None, credential: bool, *texts: str | None) -> Fault | None:
        """Return the fault of an answer by its upstream, or by a key or a token in its exchange or in feedback."""
        if upstream_table is not None and upstream_table not in self.teachers:
            return "not_teaching"
        if self.scrub and (credential or any(holds_credential(text.encode()) for text in texts if text)):
            return "credential"
        return None

    def fault_of_rejected(self, answer: RejectedAnswer) -> Fault | None:
        return self.fault(answer.upstream_table, False, orjson.dumps(answer.reply).decode())


def fault_of(
    outcome: Outcome,
    status: int | None,
    finish_reason: str | None,
    *,
    has_text: bool,
    params: Mapping[str, Any],
) -> Fault | None:
    """Return why nothing can be learnt from an answer. ``params``: of a surface in TEXT_SURFACES, else empty."""
    if outcome != "complete":
        return "incomplete"
    if status != HTTPStatus.OK:
        return "error"
    if fault := fault_of_choice(None, finish_reason):
        return fault
    if not has_text:
        return "no_text"
    return next((fault for name, fault in OWN_PROMPT.items() if params.get(name)), None)


def fault_of_choice(fault: Fault | None, finish_reason: str | None) -> Fault | None:
    """Return the fault of one choice. ``fault``: the completion's, which may be that of another choice's end."""
    if fault not in (None, "withheld", "unknown_end"):
        return fault
    end = end_of(finish_reason)
    if end == "withheld":
        return "withheld"
    return "unknown_end" if end == "unknown" and finish_reason else None


def in_words(fault: str, upstream_table: str | None = None, end: CompletionEnd | None = None) -> str:
    """``fault``: a ``Fault``, or words."""
    text = FAULTS.get(fault, fault).replace("NAME", upstream_table or "NAME")
    if end and fault == "unknown_end":
        return f"{text}: {end.finish_reason!r}"
    if end and end.error and fault == "incomplete":
        return f"{text}: {end.error[:ERROR_CHARACTERS]}"
    return text


def vain(rating: Effective, *, paired: bool) -> Fault | None:
    """Return why the feedback on an answer says nothing that can be learnt."""
    lesson = rating.reward is not None or rating.comment or paired
    return "other_prompt" if rating.preferred_over and not lesson else None
