"""The prompts by which comments teach: a criticised question, with the comment and a few others behind it.

The learner asks the serving engine with them; the trainer asks the model itself for what the engine wasn't asked.
Knows no framework.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.gate.replies import text_of
from burnish.training.job import JobDirectory, Sample
from burnish.training.teachable import uncommentable

# With three of ten wordings of "too long", the small model follows as often as with one, and stays on topic.
POOLED = 3
SAMPLES = 4
"""Replies to each criticised question, with the comment in the prompt."""
# As chat clients sample: without a nucleus even the small base model sometimes babbles.
TEMPERATURE, TOP_P = 0.8, 0.95
LEAST_TOKENS, MOST_TOKENS = 96, 512
"""Of a sampled reply: about sixty are drawn, and longer ones take too long."""
LONGER = 1.25
"""A try may be a little longer than the reply that it is to be better than."""
_CONDITION = re.compile(
    r"\b(when|whenever|if|in case|wenn|falls|quand|lorsque|cuando|quando|jeśli|когда|если)\b"
    r"|如果|とき|場合",
    re.IGNORECASE,
)
BY_TRAINER = "the engine didn't answer again for {} of {} comments, so the trainer did, which takes it longer"


@dataclass(frozen=True, slots=True)
class TeacherPrompt:
    sample: Sample
    number: int
    """Of the sample's prompts, from 0."""
    comments: tuple[str, ...]
    """Its own comes first."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return with_comments(self.sample.messages, self.comments)


def with_comments(messages: Sequence[Mapping[str, Any]], comments: Sequence[str]) -> list[dict[str, Any]]:
    """Return a context whose last user message, of which there is one, ends with comments."""
    context = [dict(message) for message in messages]
    last = max(place for place, message in enumerate(context) if message.get("role") == "user")
    context[last]["content"] = f"{text_of(context[last])}\n\n({'; '.join(comments)})"
    return context


def conditional(comment: str | None) -> bool:
    """Return whether a comment seems to be about some prompts only; ``training.conditions`` finds the others."""
    return bool(comment and _CONDITION.search(comment))


def pooled(samples: Sequence[Sample], seed: int) -> dict[str, tuple[str, ...]]:
    """Return for each sample with a comment on a reply that was not good, by id: its comment and a few others."""
    comments = {s.completion_id: s.comment for s in samples if s.comment and s.reward <= 0}
    dice, wordings = random.Random(seed), {}
    for completion_id, own in comments.items():
        pool = sorted(set(comments.values()) - {own})
        wordings[completion_id] = (own, *dice.sample(pool, min(POOLED - 1, len(pool))))
    return wordings


def teacher_prompts(samples: Sequence[Sample], seed: int) -> Iterator[TeacherPrompt]:
    """Yield ``SAMPLES`` prompts for each sample whose comment can teach, differently pooled; one sample's together."""
    # A few hundred runs may follow each other; none uses another's dice.
    wordings = [pooled(samples, seed + 1000 * number) for number in range(SAMPLES)]
    for sample in samples:
        if sample.completion_id in wordings[0] and not uncommentable(sample.messages, sample.reply):
            for number, comments in enumerate(wordings):
                yield TeacherPrompt(sample, number, comments[sample.completion_id])


def room_for(tokens: int, usual: int) -> int:
    """Return how many tokens a sampled reply may have.

    ``tokens``: of the logged reply. ``usual``: tokens that nine in ten finished replies have at most. A comment may ask
    for more than a short reply has, such as a docstring; most tries that aren't done by then never end.
    """
    return min(max(LEAST_TOKENS, usual, round(LONGER * tokens)), MOST_TOKENS)


def left_to_trainer(job: JobDirectory, samples: Sequence[Sample], seed: int) -> str | None:
    """Return in words how many criticised questions the engine didn't answer again; None if it answered all."""
    names = {prompt.sample.completion_id for prompt in teacher_prompts(samples, seed)}
    missing = names - {reply.completion_id for reply in job.teacher_replies()}
    return BY_TRAINER.format(len(missing), len(names)) if missing else None
