"""Learning from comments: the model answers again with the comments in its prompt, and learns its own answers.

For each comment, the policy at the start of the run is sampled with the comment and a few others in the prompt: people
say the same thing in many ways, and a small model understands some of them. The samples that the comments explain best
are kept, by pointwise mutual information per token,

    PMI = mean_t [ log π(y_t | prompt, comments) − log π(y_t | prompt) ].

Along them the policy with the comments in its prompt is the teacher, token by token, of the policy *without* them. So
what the comments change teaches, and all else stays. The criticised reply is unlearnt with the same weight. On the
small model that keeps replies on topic; distillation alone drifts (docs/decisions.md).

Source: self-distillation from textual feedback, arXiv 2603.10165 and 2603.12273; the choice among samples and the
contrast are ours. It needs neither a good rating nor a second model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from burnish.gate.confidence import nine_in_ten
from burnish.gate.replies import broken, last_question, left_in_text, sound, text_of
from burnish.training.backends.base import Lesson, LessonReply, Logps, Policy, TrainerBackend
from burnish.training.comments import (
    TeacherPrompt,
    pooled,
    room_for,
    teacher_prompts,
    with_comments,
)
from burnish.training.dataset import Run, rendered
from burnish.training.errors import NotTrainable
from burnish.training.job import Sample, TeacherReply
from burnish.training.rendering import Rendered, Unrenderable, check_length
from burnish.training.teachable import uncommentable

MOST_REVISIONS = 2
"""How many replies are learnt from for each comment, in the mean, at most."""
SAYS_NOTHING = "…"
"""Whatever stands behind a question makes an answer a little shorter, so a comment is compared with this."""
JUDGED = 8
"""Answers by which a comment is judged, at most."""
LEAST_OTHERS = 3
"""Answers to other comments; fewer tell nothing of a comment."""
# Whatever an answer was drawn with makes it likelier, so this is a rough test. On the small model (2 to 10 answers)
# "hm, not quite" gains −.01 to .02, eight comments on length .05 to .24. Of code a comment changes few tokens: on a
# 0.5B, five of six comments on docstrings gain .00 to .01, though it follows them.
LEAST_GAIN = 0.02
"""Nats per token of the answers to a comment."""
UNTAUGHT = (
    "told this, the model gives no usable answer",
    "the model doesn't follow it: told this, it answers no differently",
    "other comments explain their answers better",
)
"""Why nothing is learnt from a comment, in the order in which that is found."""
NO_COMMENT = "no comment is left to learn from: comment on some bad answers"
NO_ANSWER = "the model is too small: even with your comments in its prompt, it gives no usable answer"


@dataclass(frozen=True, slots=True)
class CriticisedReply:
    sample: Sample
    asking: tuple[tuple[TeacherPrompt, tuple[int, ...]], ...]
    """The prompts of the teacher, and their tokens."""
    reply: Rendered | None
    """None when it can't be rendered, e.g. because it is empty."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A reply that was drawn with comments in the prompt."""

    to: CriticisedReply
    comments: tuple[str, ...]
    teacher_tokens: Rendered
    """With the comments."""
    tokens: Rendered
    """Without them."""
    plain: Logps
    gain: float
    """PMI of answer and comments (nats per token)."""

    @property
    def comment(self) -> str:
        return self.to.sample.comment or ""


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
    answers = [(answer.tokens, answer.to.sample.weight, answer.plain) for answer in revisions]
    replies = _lesson_replies(answers, 1.0, start, run.backend)
    teachers = run.backend.distributions([answer.teacher_tokens for answer in revisions], start)
    bad_replies = _lesson_replies(_unlearnt(revisions, start, run.backend), -1.0, start, run.backend)
    return [
        *(
            Lesson("distil", (replace(reply, teacher=teacher),))
            for reply, teacher in zip(replies, teachers, strict=True)
        ),
        *(Lesson("mis_po", (reply,)) for reply in bad_replies),
    ]


def _criticised(run: Run, samples: Sequence[Sample]) -> Iterator[CriticisedReply]:
    spec, renderer = run.spec, run.backend.renderer
    comments, limit = pooled(samples, spec.seed), spec.hyperparameters.max_tokens
    prompts = defaultdict[str, list[TeacherPrompt]](list)
    for prompt in teacher_prompts(samples, spec.seed):
        prompts[prompt.sample.completion_id].append(prompt)
    for sample in samples:
        if sample.completion_id not in comments:
            continue
        try:
            if why := uncommentable(sample.messages, sample.reply):
                raise Unrenderable(why)
            asking = [
                (prompt, renderer.opening(prompt.messages, sample.template, sample.tools))
                for prompt in prompts[sample.completion_id]
            ]
            check_length(max(len(tokens) for _, tokens in asking), limit)
        except Unrenderable as error:
            _leave_out(run, sample, error)
            continue
        reply = None
        with suppress(Unrenderable):
            reply = rendered(sample, renderer, limit)
        yield CriticisedReply(sample, tuple((prompt, tuple(ids)) for prompt, ids in asking), reply)


def _leave_out(run: Run, sample: Sample, error: Unrenderable) -> None:
    has_rating = run.spec.objective != "critique" and sample.reward
    name = None if has_rating else sample.completion_id
    run.leave_out(f"the comment on completion {sample.completion_id}", error, name)


def _best(run: Run, criticised: Sequence[CriticisedReply], start: Policy) -> list[Revision]:
    """Return those of the teacher's replies that the comments explain best over all prompts."""
    critiques = {critique.sample.completion_id: critique for critique in criticised}
    replies = [reply for reply in run.job.teacher_replies() if reply.completion_id in critiques]
    by_engine = {reply.completion_id for reply in replies}
    unasked = [critique for name, critique in critiques.items() if name not in by_engine]
    replies += _sampled(run, unasked, start)
    usable = [
        (reply, critique, sides)
        for reply in replies
        if (sides := _with_and_without(run, critique := critiques[reply.completion_id], reply))
    ]
    scores = run.backend.logps([tokens for *_, sides in usable for tokens in sides], start)
    answers = [
        Revision(critique, reply.comments, *sides, plain, fmean(informed) - fmean(plain))
        for (reply, critique, sides), informed, plain in zip(usable, scores[::2], scores[1::2], strict=True)
    ]
    comments = _followed(run, answers, start)
    followed = [answer for answer in answers if answer.comment in comments and answer.gain > 0]
    best = sorted(followed, key=lambda answer: -answer.gain)[: MOST_REVISIONS * len(criticised)]
    _count_untaught(run, criticised, answers, followed, best)
    return best


def _followed(run: Run, answers: Sequence[Revision], start: Policy) -> set[str]:
    """Return the comments that the model follows.

    A comment says what others say if it makes the answers to them likelier, by more than the mean's standard error. If
    none say it, its own answers must be likelier, by ``LEAST_GAIN``.
    """
    own = defaultdict[str, list[Revision]](list)
    for answer in answers:
        own[answer.comment].append(answer)
    ranking = sorted(answers, key=lambda answer: answer.gain * len(answer.plain))
    best = {answer.to.sample.completion_id: answer for answer in ranking}.values()
    examples = sorted(best, key=lambda answer: -answer.gain * len(answer.plain))
    others = {
        comment: [answer for answer in examples if comment not in answer.comments][:JUDGED] for comment in own
    }
    shared = {comment for comment, gains in _gains(run, others, start) if _above_chance(map(sum, gains))}
    alone = {comment: answers[:JUDGED] for comment, answers in own.items() if comment not in shared}
    gains_alone = _gains(run, alone, start)
    return shared | {comment for comment, gains in gains_alone if fmean(map(fmean, gains)) > LEAST_GAIN}


def _above_chance(gains: Iterable[float]) -> bool:
    values = list(gains)
    return len(values) >= LEAST_OTHERS and fmean(values) > stdev(values) / sqrt(len(values))


def _gains(
    run: Run, answers: Mapping[str, Sequence[Revision]], start: Policy
) -> list[tuple[str, list[list[float]]]]:
    """Return each comment, and how much likelier than ``SAYS_NOTHING`` it makes some answers (nats, by token)."""
    sequences = {
        (words, answer.tokens): _followed_by(run, answer, words)
        for comment, examples in answers.items()
        for answer in examples
        for words in (comment, SAYS_NOTHING)
    }
    # In one pass, because what sequences begin with is computed once.
    scores = run.backend.logps(list(sequences.values()), start)
    logps = dict(zip(sequences, scores, strict=True))

    def gain(comment: str, tokens: Rendered) -> list[float]:
        pairs = zip(logps[comment, tokens], logps[SAYS_NOTHING, tokens], strict=True)
        return [score - control for score, control in pairs]

    return [
        (comment, [gain(comment, answer.tokens) for answer in examples])
        for comment, examples in answers.items()
    ]


def _followed_by(run: Run, answer: Revision, words: str) -> Rendered:
    """Return an answer behind its question and words alone, which may exceed the limit by another answer's comment."""
    sample = answer.to.sample
    prompt = run.backend.renderer.opening(
        with_comments(sample.messages, [words]), sample.template, sample.tools
    )
    return Rendered(tuple(prompt), answer.tokens.reply)


def _count_untaught(run: Run, criticised: Iterable[CriticisedReply], *stages: Iterable[Revision]) -> None:
    """Say why nothing is learnt from a comment: the first stage in which none of its answers is left."""
    left = [{answer.to.sample.completion_id for answer in answers} for answers in stages]
    for critique in criticised:
        name = critique.sample.completion_id
        if why := next((why for why, names in zip(UNTAUGHT, left, strict=True) if name not in names), None):
            _leave_out(run, critique.sample, Unrenderable(why))


def _sampled(run: Run, criticised: Sequence[CriticisedReply], start: Policy) -> list[TeacherReply]:
    """Ask the model itself, in this process."""
    asking = [(critique, *question) for critique in criticised for question in critique.asking]
    lengths = {
        critique.sample.completion_id: len(critique.reply.reply) for critique in criticised if critique.reply
    }
    usual = nine_in_ten(
        lengths[critique.sample.completion_id]
        for critique in criticised
        if critique.reply and critique.sample.finished
    )
    limits = [room_for(lengths.get(critique.sample.completion_id, 0), usual) for critique, _, _ in asking]
    seed, renderer = run.spec.seed, run.backend.renderer
    drawn = run.backend.sample([ids for _, _, ids in asking], start, limits, seed, run.tries(seed))
    return [
        TeacherReply(
            completion_id=prompt.sample.completion_id,
            number=prompt.number,
            comments=prompt.comments,
            reply={"role": "assistant", "content": renderer.text(sampled.ids)},
            finished=sampled.finished,
        )
        for (_, prompt, _), sampled in zip(asking, drawn, strict=True)
    ]


def _with_and_without(
    run: Run, critique: CriticisedReply, reply: TeacherReply
) -> tuple[Rendered, Rendered] | None:
    """Return a reply behind the prompt with its comments, and behind the one without; None if it isn't usable."""
    sample, limit = critique.sample, run.spec.hyperparameters.max_tokens
    if not (reply.finished and _is_usable(sample, reply.reply)):
        return None
    commented = tuple(with_comments(sample.messages, reply.comments))
    with suppress(Unrenderable):
        informed, plain = (
            rendered(sample.with_reply(reply.reply, messages=messages), run.backend.renderer, limit)
            for messages in (commented, sample.messages)
        )
        return (informed, plain) if informed.reply == plain.reply else None
    return None


def _is_usable(sample: Sample, reply: Mapping[str, Any]) -> bool:
    """A text with a call in it isn't: nobody has read that call."""
    if calls := reply.get("tool_calls"):
        return not any(broken(call, sample.tools) for call in calls)
    text = text_of(reply)
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


def _lesson_replies(
    replies: Sequence[tuple[Rendered, float, Logps]], pull: float, start: Policy, backend: TrainerBackend
) -> list[LessonReply]:
    """Return replies, with their weights and how they score at the start, to be made likelier or less so.

    No version drew these samples without the comments, so the start of the run counts as their behaviour policy.
    """
    tokens = [sequence for sequence, _, _ in replies]
    reference = [logps for _, _, logps in replies] if start == "bare" else backend.logps(tokens, "bare")
    return [
        LessonReply(sequence, pull, weight, behaved, referred)
        for (sequence, weight, behaved), referred in zip(replies, reference, strict=True)
    ]
