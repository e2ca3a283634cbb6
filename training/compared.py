"""Is the prompt that training renders the one that the engine read? By the engine's count, and by ids that it told.

Chat templates, conversions and defaults of engines differ in ways that nobody lists, so what differs isn't taught.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.training.job import CONTINUED, EpisodeStep, PromptsCompared, Sample
from burnish.training.rendering import Renderer, Unrenderable

DIFFERENT = "the engine read another prompt than training renders"
MOST_OFFSET = 3
"""Tokens that an engine may count more or less in a whole format: marks of the beginning and the end. More is text."""
ENOUGH = 3
"""Plain chats from which an offset is learnt."""
PLAIN_ROLES = ("system", "user", "assistant")


@dataclass(slots=True)
class Compared:
    same: int = 0
    unchecked: int = 0
    different: set[str] = field(default_factory=set)
    """Names of answers."""
    offsets: dict[str, int] = field(default_factory=dict)
    """Tokens that the engine counts more than there are, by format; only what isn't 0."""

    def record(self) -> PromptsCompared:
        return PromptsCompared(
            same=self.same, unchecked=self.unchecked, different=len(self.different), offsets=self.offsets
        )


def compared(answers: Iterable[Sample | EpisodeStep], renderer: Renderer) -> Compared:
    """Compare the prompts of answers of the model that is trained. What can't be rendered is left to training."""
    outcome, counted = Compared(), defaultdict[str, list[tuple[Sample | EpisodeStep, int]]](list)
    for answer in answers:
        if answer.read is None:
            continue
        if not (answer.read.ids or answer.read.tokens):
            outcome.unchecked += 1
            continue
        messages = answer.read.messages or answer.messages
        try:
            rendered = renderer.prompt(messages, answer.tools, answer.template, as_engine=True)
        except Unrenderable:
            continue
        if answer.read.ids:
            _note(outcome, answer, same=tuple(rendered) == answer.read.ids)
        else:
            counted[answer.read.format].append((answer, (answer.read.tokens or 0) - len(rendered)))
    for format_of, differences in counted.items():
        offset = _offset([difference for answer, difference in differences if _is_plain(answer)])
        if offset:
            outcome.offsets[format_of] = offset
        for answer, difference in differences:
            _note(outcome, answer, same=difference == offset)
    return outcome


def _note(outcome: Compared, answer: Sample | EpisodeStep, *, same: bool) -> None:
    if same:
        outcome.same += 1
    else:
        outcome.different.add(answer.completion_id)


def _offset(differences: Sequence[int]) -> int:
    """Return the offset that most plain chats share; 0 if there are too few, or it is too much for marks."""
    if not differences:
        return 0
    offset, count = Counter(differences).most_common(1)[0]
    return offset if count >= ENOUGH and 2 * count > len(differences) and abs(offset) <= MOST_OFFSET else 0


def _is_plain(answer: Sample | EpisodeStep) -> bool:
    return not (answer.tools or answer.template.get(CONTINUED)) and all(
        map(_is_plain_message, answer.messages)
    )


def _is_plain_message(message: Mapping[str, Any]) -> bool:
    return (
        message.get("role") in PLAIN_ROLES
        and isinstance(message.get("content"), str)
        and not message.get("tool_calls")
        and not message.get("reasoning_content")
    )
