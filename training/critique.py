"""Learning from words: the model, told what was wanted, answers anew and teaches the model that isn't told.

For each comment the policy at the start of the run is sampled with the comment in its prompt, and with a few others'
beside it: people say the same wish in many ways, and a small model understands some of them. Of what it says, the
replies that the comment explains best are kept – by pointwise mutual information a token,

    PMI = mean_t [ log π(y_t | prompt, comment) − log π(y_t | prompt) ],

and learnt as replies to the prompt *without* the comment; the reply that was criticised is unlearnt with the same
weight. On the small model that keeps replies on the topic, from which imitation alone drifts (docs/learning.md).

Source: self-distillation from textual feedback, arXiv 2603.10165 and 2603.12273; the choice among samples and the
contrast are ours. It needs neither a good rating nor a second model. Two plainer forms are here to be compared with:
``critique_imitate`` learns the kept replies and unlearns nothing; ``critique_per_token`` samples nothing, and moves
each token of the criticised reply by how much likelier the told model finds it (arXiv 2601.20802), clipped.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from burnish.adapters.replies import near_empty, on_topic, repetitive, topics
from burnish.training.backends.base import Lesson, Reply, Sampled, TrainerBackend
from burnish.training.dataset import check_text, leave_out, rendered
from burnish.training.errors import NotTrainable
from burnish.training.job import JobSpec, Sample
from burnish.training.rendering import Rendered, Unrenderable, asked, flattened

# A reply that doesn't finish is not learnt from, so there is room for one as long as those that were criticised …
TEACHER_TOKENS = 96
# … as far as sampling some sixty of them is bearable.
MOST_TEACHER_TOKENS = 512
# With three of ten wordings of "too long", the small model follows as often as with one, and stays on topic.
POOLED = 3
# Nats by which a single token's probability may count for or against it.
MOST_PER_TOKEN = 1.0
NO_COMMENT = "no comment is left to learn from: say of some answers what was wrong with them"


@dataclass(frozen=True, slots=True)
class Criticised:
    """A reply that somebody said something about."""

    sample: Sample
    plain: tuple[int, ...]
    """The prompt that the reply was given to."""
    told: tuple[int, ...]
    """The same, with what was said about the reply."""
    criticised: Rendered | None
    """The reply itself; None when there is none to render, e.g. an empty one."""


def told(messages: Sequence[Mapping[str, Any]], comments: Sequence[str]) -> list[dict[str, Any]]:
    """Return a context whose last user message ends with comments. Raises Unrenderable when there is none."""
    found = [flattened(message) for message in messages]
    last = max((place for place, message in enumerate(found) if message.get("role") == "user"), default=None)
    if last is None:
        raise Unrenderable("no message of a user comes before the answer")
    found[last]["content"] = f"{found[last]['content']}\n\n({'; '.join(comments)})"
    return found


def taught(
    spec: JobSpec, samples: Sequence[Sample], backend: TrainerBackend, left_out: Counter[str] | None = None
) -> list[Lesson]:
    """Return what the comments teach. Raises NotTrainable when there is none, or the model can't follow any."""
    criticised = _criticised(samples, spec, backend, left_out)
    if not criticised:
        raise NotTrainable(NO_COMMENT)
    if spec.objective == "critique_per_token":
        return _weighed(criticised, backend)
    kept = _best(criticised, spec, backend)
    if not kept:
        raise NotTrainable(
            "told what you said, the model gives no usable answer either: it is too small for it"
        )
    return _lessons(kept, spec, backend)


def pooled(samples: Sequence[Sample], seed: int) -> dict[str, list[str]]:
    """Return for each sample with a comment on a reply that was not good, by id: its comment and a few others."""
    said = {s.completion_id: s.comment for s in samples if s.comment and s.reward <= 0}
    dice, found = random.Random(seed), {}
    for completion_id, own in said.items():
        others = sorted(set(said.values()) - {own})
        found[completion_id] = [own, *dice.sample(others, min(POOLED - 1, len(others)))]
    return found


def _criticised(
    samples: Sequence[Sample], spec: JobSpec, backend: TrainerBackend, left_out: Counter[str] | None
) -> list[Criticised]:
    comments, found = pooled(samples, spec.seed), []
    for sample in samples:
        if sample.completion_id not in comments:
            continue
        try:
            check_text(sample)
            if sample.tools:
                raise Unrenderable("a comment on an answer with tools at hand")
            plain = backend.renderer.prompt(sample.messages)
            heard = backend.renderer.prompt(told(sample.messages, comments[sample.completion_id]))
        except Unrenderable as error:
            leave_out(f"the comment on completion {sample.completion_id}", error, left_out)
        else:
            reply = _reply_to(sample, spec.hyperparameters.max_tokens, backend)
            found.append(Criticised(sample, tuple(plain), tuple(heard), reply))
    return found


def _reply_to(sample: Sample, max_tokens: int, backend: TrainerBackend) -> Rendered | None:
    try:
        return rendered(sample, backend.renderer, max_tokens)
    except Unrenderable:
        return None


def _best(
    criticised: Sequence[Criticised], spec: JobSpec, backend: TrainerBackend
) -> list[tuple[Criticised, list[Sampled]]]:
    """Sample replies to each told prompt, and keep those that the comment explains best, if there are any."""
    config = spec.hyperparameters
    askers = [each for each in criticised for _ in range(config.teacher_samples)]
    answers = backend.sample([each.told for each in askers], "trained", _room(criticised), spec.seed)
    usable = [
        (each, answer) for each, answer in zip(askers, answers, strict=True) if _usable(each, answer, backend)
    ]
    informed = backend.logps([Rendered(each.told, answer.ids) for each, answer in usable], "trained")
    plain = backend.logps([Rendered(each.plain, answer.ids) for each, answer in usable], "trained")
    gains = [fmean(with_it) - fmean(without) for with_it, without in zip(informed, plain, strict=True)]
    found = []
    for each in criticised:
        explained = sorted(
            (
                (gain, answer)
                for gain, (asker, answer) in zip(gains, usable, strict=True)
                if asker is each and gain > 0
            ),
            key=lambda entry: -entry[0],
        )
        if explained:
            found.append((each, [answer for _, answer in explained[: config.teacher_kept]]))
    return found


def _room(criticised: Sequence[Criticised]) -> int:
    longest = max((len(each.criticised.reply) for each in criticised if each.criticised), default=0)
    return min(max(TEACHER_TOKENS, longest), MOST_TEACHER_TOKENS)


def _usable(each: Criticised, answer: Sampled, backend: TrainerBackend) -> bool:
    if not answer.finished:
        return False
    text = backend.renderer.text(answer.ids)
    stems = topics(asked(each.sample.messages))
    return not (near_empty(text) or repetitive(text)) and (not stems or on_topic(text, stems))


def _lessons(
    kept: Sequence[tuple[Criticised, list[Sampled]]], spec: JobSpec, backend: TrainerBackend
) -> list[Lesson]:
    """Make what it said when told likelier, and what was criticised less likely, with the same weight in sum."""
    replies: list[tuple[Rendered, float, float]] = []  # tokens, advantage, weight
    for each, answers in kept:
        replies += [(Rendered(each.plain, answer.ids), 1.0, each.sample.weight) for answer in answers]
        if each.criticised and spec.objective != "critique_imitate":
            replies.append((each.criticised, -1.0, each.sample.weight * len(answers)))
    tokens = [rendered for rendered, _, _ in replies]
    reference = backend.logps(tokens, "bare")
    # What it said when told is no sample of any version that wasn't: the policy at the start of the run stands in.
    start = backend.logps(tokens, "trained") if spec.parent_adapter else reference
    return [
        Lesson("mis_po", (Reply(each, (pull,) * len(each.reply), pull > 0, weight, behaved, referred),))
        for (each, pull, weight), behaved, referred in zip(replies, start, reference, strict=True)
    ]


def _weighed(criticised: Sequence[Criticised], backend: TrainerBackend) -> list[Lesson]:
    """Let each token of the criticised replies pull by log π(y_t | prompt, comment) − log π(y_t | prompt), clipped."""
    found = [(each, each.criticised) for each in criticised if each.criticised]
    replies = [reply for _, reply in found]
    informed = backend.logps([Rendered(each.told, reply.reply) for each, reply in found], "trained")
    start, reference = (backend.logps(replies, policy) for policy in ("trained", "bare"))
    lessons = []
    for (each, reply), heard, plain, referred in zip(found, informed, start, reference, strict=True):
        gains = [max(-MOST_PER_TOKEN, min(MOST_PER_TOKEN, h - p)) for h, p in zip(heard, plain, strict=True)]
        lessons.append(
            Lesson(
                "mis_po", (Reply(reply, tuple(gains), sum(gains) > 0, each.sample.weight, plain, referred),)
            )
        )
    return lessons
