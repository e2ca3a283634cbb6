"""Learning from comments: the model answers again with the comments in its prompt, and learns its own answers.

For each comment, the policy at the start of the run is sampled with the comment and a few others in the prompt: people
say the same thing in many ways, and a small model understands some of them. The samples that the comments explain best
are kept, by pointwise mutual information per token,

    PMI = mean_t [ log π(y_t | prompt, comments) − log π(y_t | prompt) ],

and learnt as replies to the prompt *without* the comments. The criticised reply is unlearnt with the same weight. On
the small model that keeps replies on topic; imitation alone drifts (docs/bench/learning.md).

Source: self-distillation from textual feedback, arXiv 2603.10165 and 2603.12273; the choice among samples and the
contrast are ours. It needs neither a good rating nor a second model.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from burnish.gate.replies import last_question, left_in_text, sound
from burnish.training.backends.base import Lesson, LessonReply, Logps, Policy, TrainerBackend, room_for
from burnish.training.dataset import Run, rendered
from burnish.training.errors import NotTrainable
from burnish.training.job import Sample
from burnish.training.rendering import Rendered, Unrenderable, flattened
from burnish.training.teachable import NOBODY_ASKED, uncommentable

# With three of ten wordings of "too long", the small model follows as often as with one, and stays on topic.
POOLED = 3
SAMPLES = 4
"""Replies sampled for each comment, with the comment in the prompt."""
MOST_REVISIONS = 2
"""How many of those are learnt from, at most."""
# A try may be a little longer than the reply that it is to be better than. Most that aren't done by then never end.
LONGER = 1.25
NO_COMMENT = "no comment is left to learn from: comment on some bad answers"
NO_ANSWER = "the model is too small: even with your comments in its prompt, it gives no usable answer"


@dataclass(frozen=True, slots=True)
class CriticisedReply:
    sample: Sample
    plain: tuple[int, ...]
    """The prompt that the reply was given to."""
    commented: tuple[tuple[int, ...], ...]
    """The prompt with the comment and other ones, differently pooled each time."""
    reply: Rendered | None
    """None when it can't be rendered, e.g. because it is empty."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A sample that was drawn with comments in the prompt."""

    to: CriticisedReply
    tokens: Rendered
    plain: Logps
    """Without the comments."""
    gain: float
    """PMI of answer and comments (nats per token)."""


def with_comments(messages: Sequence[Mapping[str, Any]], comments: Sequence[str]) -> list[dict[str, Any]]:
    """Return a context whose last user message ends with comments. Raises Unrenderable when there is none."""
    context = [flattened(message) for message in messages]
    last = max(
        (place for place, message in enumerate(context) if message.get("role") == "user"), default=None
    )
    if last is None:
        raise Unrenderable(NOBODY_ASKED)
    context[last]["content"] = f"{context[last]['content']}\n\n({'; '.join(comments)})"
    return context


def pooled(samples: Sequence[Sample], seed: int) -> dict[str, list[str]]:
    """Return for each sample with a comment on a reply that was not good, by id: its comment and a few others."""
    comments = {s.completion_id: s.comment for s in samples if s.comment and s.reward <= 0}
    dice, wordings = random.Random(seed), {}
    for completion_id, own in comments.items():
        pool = sorted(set(comments.values()) - {own})
        wordings[completion_id] = [own, *dice.sample(pool, min(POOLED - 1, len(pool)))]
    return wordings


def lessons_from_comments(run: Run, samples: Sequence[Sample]) -> list[Lesson]:
    """Return the lessons. Raises NotTrainable without comments, or when the model can't follow any."""
    criticised = list(_criticised(run, samples))
    if not criticised:
        raise NotTrainable(NO_COMMENT)
    # The adapter under training is still the base model where it has no parent, and then costs only time.
    start: Policy = "trained" if run.spec.parent_adapter else "bare"
    revisions = _best(run, criticised, start)
    if not revisions:
        raise NotTrainable(NO_ANSWER)
    replies = [(answer.tokens, answer.to.sample.weight, answer.plain) for answer in revisions]
    lessons = _lessons(replies, 1.0, start, run.backend)
    return lessons + _lessons(_unlearnt(revisions, start, run.backend), -1.0, start, run.backend)


def _criticised(run: Run, samples: Sequence[Sample]) -> Iterable[CriticisedReply]:
    spec, renderer = run.spec, run.backend.renderer
    # A few hundred runs may follow each other; none uses another's dice.
    wordings = [pooled(samples, spec.seed + 1000 * time) for time in range(SAMPLES)]
    for sample in samples:
        if sample.completion_id not in wordings[0]:
            continue
        try:
            if why := uncommentable(sample.messages, sample.reply):
                raise Unrenderable(why)
            contexts = [
                with_comments(sample.messages, comments[sample.completion_id]) for comments in wordings
            ]
            plain, *commented = (
                tuple(renderer.opening(context, sample.template, sample.tools))
                for context in (sample.messages, *contexts)
            )
        except Unrenderable as error:
            has_rating = spec.objective != "critique" and sample.reward
            name = None if has_rating else sample.completion_id
            run.leave_out(f"the comment on completion {sample.completion_id}", error, name)
            continue
        reply = None
        with suppress(Unrenderable):
            reply = rendered(sample, renderer, spec.hyperparameters.max_tokens)
        yield CriticisedReply(sample, plain, tuple(commented), reply)


def _best(run: Run, criticised: Sequence[CriticisedReply], start: Policy) -> list[Revision]:
    """Sample a reply to each prompt with comments, and keep those that the comments explain best over all prompts."""
    asking = [(critique, prompt) for critique in criticised for prompt in critique.commented]
    longest = max((len(critique.reply.reply) for critique in criticised if critique.reply), default=0)
    limits = [
        room_for(round(LONGER * len(critique.reply.reply)) if critique.reply else longest)
        for critique, _ in asking
    ]
    prompts, seed = [prompt for _, prompt in asking], run.spec.seed
    drawn = run.backend.sample(prompts, start, limits, seed, run.tries(seed))
    usable = [
        (critique, Rendered(critique.plain, sampled.ids), fmean(sampled.logps))
        for (critique, _), sampled in zip(asking, drawn, strict=True)
        if sampled.finished and _is_usable(critique.sample, run.backend.renderer.text(sampled.ids))
    ]
    plain = run.backend.logps([tokens for _, tokens, _ in usable], start)
    answers = [
        Revision(critique, tokens, logps, informed - fmean(logps))
        for (critique, tokens, informed), logps in zip(usable, plain, strict=True)
    ]
    explained = sorted((answer for answer in answers if answer.gain > 0), key=lambda answer: -answer.gain)
    return explained[: MOST_REVISIONS * len(criticised)]


def _is_usable(sample: Sample, text: str) -> bool:
    """A text with a call in it isn't: nobody has read that call."""
    return not (sample.tools and left_in_text(text)) and sound(text, last_question(sample.messages))


def _unlearnt(
    revisions: Sequence[Revision], start: Policy, backend: TrainerBackend
) -> list[tuple[Rendered, float, Logps]]:
    """Return the criticised replies, each with the weight of what was said instead of it."""
    counts = Counter(answer.to.sample.completion_id for answer in revisions)
    criticised = {answer.to.sample.completion_id: answer.to for answer in revisions}
    pairs = [(critique, critique.reply) for critique in criticised.values() if critique.reply]
    scored = backend.logps([reply for _, reply in pairs], start)
    return [
        (reply, critique.sample.weight * counts[critique.sample.completion_id], logps)
        for (critique, reply), logps in zip(pairs, scored, strict=True)
    ]


def _lessons(
    replies: Sequence[tuple[Rendered, float, Logps]], pull: float, start: Policy, backend: TrainerBackend
) -> list[Lesson]:
    """Make replies, with their weights and how they score at the start, likelier or less so.

    No version drew these samples without the comments, so the start of the run counts as their behaviour policy.
    """
    tokens = [sequence for sequence, _, _ in replies]
    reference = [logps for _, _, logps in replies] if start == "bare" else backend.logps(tokens, "bare")
    return [
        Lesson("mis_po", (LessonReply(sequence, pull, weight, behaved, referred),))
        for (sequence, weight, behaved), referred in zip(replies, reference, strict=True)
    ]
