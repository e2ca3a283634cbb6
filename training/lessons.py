"""Rated completions → lessons: replies, their formula, and their strength. Knows no framework."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from burnish.config.hyperparameters import POLICY_GRADIENT
from burnish.training.anchors import against_comments
from burnish.training.backends.base import Lesson, LessonReply, Logps, Policy
from burnish.training.comments import pooled
from burnish.training.critique import NO_COMMENT, lessons_from_comments
from burnish.training.dataset import Run, TrainingExample, rendered
from burnish.training.errors import JobError, NotTrainable
from burnish.training.job import Hyperparameters, LossName, Objective, Sample
from burnish.training.policy_gradient import GradedAnswer, lessons_from, prompt_of, told_apart
from burnish.training.presets import NOTHING, teaches
from burnish.training.rendering import Rendered, Unrenderable
from burnish.training.strength import DISBELIEVED, above_average, advantages, balanced, enough, trust

NO_DEMONSTRATION = "no answer is left to imitate: rate answers good, correct them, or prefer one over another"
NO_PAIR = "no pair is left to learn from: correct a reply, or prefer one over another"
DOUBTED = "the other ratings speak against it"
BY_CLASS = ("kto", "sft")
"""Losses that only look at the sign of a rating: here, weights balance the classes."""


def lessons(run: Run, samples: Sequence[Sample], taught: Collection[str] = ()) -> list[Lesson]:
    """Return what a run learns from the samples that it may train on; what it doesn't is counted in ``left_out``.

    ``taught``: completions from which another stage of the run learns. Raises NotTrainable (they can't teach by this
    objective), JobError (an adapter that is needed isn't named).
    """
    _count_untaught(run, [sample for sample in samples if sample.completion_id not in taught])
    match run.spec.objective:
        case "dpo":
            return _pairs(run, samples)
        case "critique":
            answers = lessons_from_comments(run, samples)
            anchored = run.spec.hyperparameters.rehearsed > 0
            return answers + (against_comments(run, samples, answers) if anchored else [])
        case "hybrid":
            from_ratings = _rated(run, "mis_po", samples)
            # Criticised answers count as rated bad, so these have them already.
            return from_ratings + [lesson for lesson in lessons_from_comments(run, samples) if lesson.good]
        case loss:
            return _rated(run, loss, samples)


def _count_untaught(run: Run, samples: Sequence[Sample]) -> None:
    objective = run.spec.objective
    for sample in samples:
        if not teaches(sample, objective):
            run.left_out.add(NOTHING.format(objective), sample.completion_id)


def check_teachable(objective: Objective, samples: Sequence[Sample], config: Hyperparameters) -> None:
    """Refuse samples that can't teach by an objective, as far as that shows without a model. Raises NotTrainable."""
    rewards = [sample.reward for sample in samples if sample.reward]
    match objective:
        case "dpo":
            if not any(sample.correction or sample.worse for sample in samples):
                raise NotTrainable(NO_PAIR)
        case "critique":
            if not pooled(samples, seed=0):
                raise NotTrainable(NO_COMMENT)
        case "hybrid":
            check_classes(rewards, "mis_po", config)
        case "sft":
            if not any(teaches(sample, "sft") for sample in samples):
                raise NotTrainable(NO_DEMONSTRATION)
        case objective if objective in POLICY_GRADIENT:
            rewards = [sample.reward for sample in told_apart(samples)]
            if not rewards or min(rewards) == max(rewards):
                raise NotTrainable(
                    f"{objective} compares answers, and all of these count alike: rate some good and some bad, correct "
                    "an answer, or prefer one over another"
                )
        case loss:
            check_classes(rewards, loss, config)


def _rated(run: Run, loss: LossName, samples: Sequence[Sample]) -> list[Lesson]:
    config = run.spec.hyperparameters
    if loss == "sft":
        samples = [_wanted(sample) for sample in samples]
    training = run.examples(sample for sample in samples if sample.reward)
    check_classes([example.sample.reward for example in training], loss, config)
    training = _believed(run, training)
    if loss == "sft":
        training = [example for example in training if example.sample.reward > 0]
    reference, behaviour = _reference_and_behaviour(run, training)
    pulls, weights = _pulls(loss, training, config)
    ends = [example.sample.finished for example in training]
    return [
        Lesson(loss, (LessonReply(example.tokens, pull, weight, behaved, referred, spares_end=finished),))
        for example, pull, weight, behaved, referred, finished in zip(
            training, pulls, weights, behaviour, reference, ends, strict=True
        )
    ]


def _wanted(sample: Sample) -> Sample:
    """Return what sft learns from a sample: its correction instead of the reply, and a reply that was preferred."""
    if sample.correction:
        return sample.with_reply(sample.correction, reward=1.0)
    return sample.model_copy(update={"reward": 1.0}) if sample.worse and sample.reward <= 0 else sample


def imitation(run: Run, samples: Sequence[Sample]) -> list[Lesson]:
    """Return lessons by ``sft`` from replies to imitate, whatever the objective of the run is."""
    replies = run.examples(samples)
    tokens = [example.tokens for example in replies]
    start, reference = run.backend.logps(tokens, "trained"), run.backend.logps(tokens, "bare")
    return [
        Lesson("sft", (LessonReply(example.tokens, 1.0, example.sample.weight, behaved, referred),))
        for example, behaved, referred in zip(replies, start, reference, strict=True)
    ]


def logged(run: Run, samples: Sequence[Sample]) -> list[Lesson]:
    """Return lessons of a policy gradient from the logged answers, each under the version that gave it."""
    _count_untaught(run, samples)
    training = run.examples(told_apart(samples))
    _, behaviour = _reference_and_behaviour(run, training)
    answers = [
        GradedAnswer(
            prompt_of(example.sample),
            example.tokens,
            example.sample.reward,
            example.sample.weight,
            behaved,
            example.sample.completion_id,
        )
        for example, behaved in zip(training, behaviour, strict=True)
    ]
    return lessons_from(run, answers)


def _believed(run: Run, training: list[TrainingExample]) -> list[TrainingExample]:
    """Weigh each rating by how far the others bear it out, and leave out those that they speak against.

    Neither kind is left out whole: then it is the similarity that is mistaken.
    """
    good = [example.sample.reward > 0 for example in training]
    label_noise = run.spec.hyperparameters.label_noise
    if not label_noise or not enough(good):
        return training
    believed = trust(run.backend.similarity([example.tokens for example in training]), good, label_noise)
    remainder = [
        replace(example, sample=example.sample.model_copy(update={"weight": example.sample.weight * belief}))
        for example, belief in zip(training, believed, strict=True)
        if belief > DISBELIEVED
    ]
    if len({example.sample.reward > 0 for example in remainder}) == 1:
        return training
    for example, belief in zip(training, believed, strict=True):
        if belief <= DISBELIEVED:
            name = example.sample.completion_id
            run.leave_out(f"completion {name}", Unrenderable(DOUBTED), name)
    return remainder


def _pulls(
    loss: LossName, training: Sequence[TrainingExample], config: Hyperparameters
) -> tuple[list[float], list[float]]:
    rewards = [example.sample.reward for example in training]
    weights = [example.sample.weight for example in training]
    if loss in BY_CLASS:
        strength = [weight * abs(reward) for weight, reward in zip(weights, rewards, strict=True)]
        return rewards, balanced([reward > 0 for reward in rewards], strength)
    if config.baseline == "batch":
        return advantages(rewards, weights), weights
    # Completion ids sort by time.
    order = sorted(range(len(training)), key=lambda place: training[place].sample.completion_id)
    above = dict(zip(order, above_average([rewards[place] for place in order]), strict=True))
    return [above[place] for place in range(len(training))], weights


def _pairs(run: Run, samples: Sequence[Sample]) -> list[Lesson]:
    """A correction and a reply that was preferred are lessons in pairs."""
    backend, limit = run.backend, run.spec.hyperparameters.max_tokens
    pairs: list[tuple[Sample, Rendered, Rendered]] = []
    for sample in samples:
        name = sample.completion_id
        for better, worse in _better_and_worse(sample):
            try:
                pair = [rendered(side, backend.renderer, limit) for side in (better, worse)]
                pairs.append((sample, pair[0], pair[1]))
            except Unrenderable as error:
                run.leave_out(f"a pair of completion {name}", error, name)
    if not pairs:
        raise NotTrainable(NO_PAIR)
    for sample, *_ in pairs:
        run.left_out.answers.pop(sample.completion_id, None)  # its other pair
    tokens = [sequence for _, *pair in pairs for sequence in pair]
    reference = backend.logps(tokens, "bare")
    start = backend.logps(tokens, "trained") if run.spec.parent_adapter else reference
    return [
        Lesson(
            "dpo",
            (
                LessonReply(better, 1.0, sample.weight, start[2 * place], reference[2 * place]),
                LessonReply(worse, -1.0, sample.weight, start[2 * place + 1], reference[2 * place + 1]),
            ),
        )
        for place, (sample, better, worse) in enumerate(pairs)
    ]


def _better_and_worse(sample: Sample) -> list[tuple[Sample, Sample]]:
    corrected = [(sample.with_reply(sample.correction), sample)] if sample.correction else []
    return corrected + [(sample, sample.with_reply(worse)) for worse in sample.worse]


def _reference_and_behaviour(
    run: Run, training: Sequence[TrainingExample]
) -> tuple[list[Logps], list[Logps]]:
    reference = run.backend.logps([example.tokens for example in training], "bare")
    versions = [(example.tokens, example.sample.behaviour_version) for example in training]
    return reference, scored_by_version(run, versions, {0: reference})


def scored_by_version(
    run: Run,
    replies: Sequence[tuple[Rendered, int | None]],
    scores: Mapping[int | None, Sequence[Logps]],
) -> list[Logps]:
    """Score each reply under the version that generated it. ``scores``: of all replies, under some versions.

    A reply of some other model (None) has no behaviour policy here: the policy at the start of the run stands in, so
    that the bands bound how far training moves from it. Raises JobError.
    """
    rows: dict[int, Logps] = {}
    for version in {version for _, version in replies}:
        places = [place for place, (_, own) in enumerate(replies) if own == version]
        if version in scores:
            scored = [scores[version][place] for place in places]
        else:
            scored = run.backend.logps([replies[place][0] for place in places], _policy(run, version))
        rows.update(zip(places, scored, strict=True))
    return [rows[place] for place in range(len(replies))]


def _policy(run: Run, version: int | None) -> Policy:
    if not version:
        return "trained" if version is None else "bare"
    if version not in run.spec.behaviour_adapters:
        raise JobError(f"version {version} generated a sample, but job.json names no adapter for it")
    return run.job.path / run.spec.behaviour_adapters[version]


def check_classes(rewards: Sequence[float], loss: LossName, config: Hyperparameters) -> None:
    """Refuse ratings that would teach nothing, or do harm. Raises NotTrainable.

    On bad ratings alone a model learns to answer with gibberish, and no rating shows it. A KL penalty
    (``kl_beta`` > 0) bounds the damage, so one-sided ratings are accepted with it.
    """
    good = sum(reward > 0 for reward in rewards)
    bad = sum(reward < 0 for reward in rewards)
    if not good and not bad:
        raise NotTrainable("no rated reply is left to train on: rate some answers good and some bad")
    if loss == "sft" and good:
        return
    if not (good and bad) and config.kl_beta == 0:
        missing = "bad" if good else "good"
        raise NotTrainable(
            f"the {good + bad} ratings are one-sided: rate some answers {missing} as well, "
            "or set kl_beta > 0 to train on them anyway"
        )
