"""From samples to lessons, on the tiny model."""

from __future__ import annotations

import pytest

from burnish.training.backends.base import Lesson
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.dataset import LeftOut
from burnish.training.errors import NotTrainable
from burnish.training.job import Hyperparameters, Objective, Sample
from burnish.training.lessons import DOUBTED, check_classes, lessons
from tests.support.jobs import LONG, SHORT, TOPICS, run_of, sample

RATED = ("mis_po", "kto", "bench.learning.losses.forms:published")


def learnt(
    backend: TorchPeftBackend, objective: Objective, samples: list[Sample], *left_out: LeftOut, **more: object
) -> list[Lesson]:
    run = run_of(backend, *left_out, objective=objective, hyperparameters=Hyperparameters(**more))
    return lessons(run, samples)


def one_good_of_four() -> list[Sample]:
    return [sample(n, good=n == 0) for n in range(4)]


@pytest.mark.parametrize("loss", RATED)
def test_each_rated_reply_is_a_lesson_and_classes_balance(backend: TorchPeftBackend, loss: Objective) -> None:
    found = learnt(backend, loss, one_good_of_four())
    assert [lesson.loss for lesson in found] == [loss] * 4
    (good, *bad) = [reply for lesson in found for reply in lesson.replies]
    assert good.good
    assert not any(reply.good for reply in bad)
    assert all(len(reply.tokens.reply) == len(reply.reference_logps) for reply in bad)
    pull = [reply.weight * (1 if loss == "kto" else abs(reply.pull)) for reply in (good, *bad)]
    assert pull[0] == pytest.approx(sum(pull[1:]))


def test_a_bad_reply_is_not_unlearnt_as_far_as_it_ends(backend: TorchPeftBackend) -> None:
    """Nobody complained that it ended; one that was cut has no end."""
    samples = [sample(0, good=True), sample(1, good=False), sample(2, good=False, finished=False)]
    good, ended, cut = (lesson.replies[0] for lesson in learnt(backend, "mis_po", samples))
    assert good.advantages == (good.pull,) * len(good.tokens.reply)
    assert ended.advantages == (*[ended.pull] * (len(ended.tokens.reply) - 1), 0.0)
    assert cut.advantages == (cut.pull,) * len(cut.tokens.reply)


def mistaken(number: int) -> list[Sample]:
    """Short replies are good, long ones bad, but for the first ``number``: they are rated the wrong way round."""
    right = [sample(n, good=n % 2 == 0) for n in range(20)]
    return [each.model_copy(update={"reward": -each.reward}) for each in right[:number]] + right[number:]


def test_ratings_that_all_others_speak_against_are_left_out_and_named(backend: TorchPeftBackend) -> None:
    left_out, samples = LeftOut(), mistaken(2)
    found = learnt(backend, "mis_po", samples, left_out)
    assert left_out.counts == {DOUBTED: 2}
    assert left_out.answers == {each.completion_id: DOUBTED for each in samples[:2]}
    assert len(found) == 18
    assert {lesson.good for lesson in found} == {True, False}
    weights = [reply.weight for lesson in found for reply in lesson.replies]
    assert min(weights) > 0.8, "the others bear each other out"


@pytest.mark.parametrize(("samples", "noise"), [(mistaken(2), 0.0), (mistaken(2)[:12], 0.3)])
def test_every_rating_is_believed_when_so_wanted_and_when_there_are_few(
    backend: TorchPeftBackend, samples: list[Sample], noise: float
) -> None:
    found = learnt(backend, "mis_po", samples, label_noise=noise)
    assert [reply.weight for lesson in found for reply in lesson.replies] == [1.0] * len(samples)


def test_with_a_moving_average_a_rating_is_compared_with_those_before_it(backend: TorchPeftBackend) -> None:
    found = learnt(backend, "mis_po", one_good_of_four()[::-1], baseline="ema")
    pulls = [lesson.replies[0].pull for lesson in found][::-1]
    # After 1: .01; after 1, -1: .99 * .01 - .01 = -.0001; after 1, -1, -1: -.010099.
    assert pulls == pytest.approx([1.0, -1.01, -0.9999, -0.989901])
    assert {lesson.replies[0].weight for lesson in found} == {1.0}


def test_sft_learns_the_good_ones_only(backend: TorchPeftBackend) -> None:
    (only,) = learnt(backend, "sft", one_good_of_four())
    assert only.good


def test_sft_learns_corrections_and_preferred_answers_however_rated(backend: TorchPeftBackend) -> None:
    wanted = SHORT.format(TOPICS[1])
    corrected = sample(1, good=False, correction=wanted)
    worse = ({"role": "assistant", "content": LONG.format(TOPICS[2])},)
    preferred = sample(2, good=True, worse=worse, reward=0.0)
    left_out = LeftOut()
    found = learnt(backend, "sft", [corrected, preferred, sample(3, good=False)], left_out)
    texts = [backend.renderer.text(lesson.replies[0].tokens.reply) for lesson in found]
    assert texts == [wanted, SHORT.format(TOPICS[2])]
    assert left_out.answers == {"cmpl_3": "nothing in it that sft learns from"}


def test_a_correction_and_a_preference_are_pairs(backend: TorchPeftBackend) -> None:
    wanted = SHORT.format(TOPICS[1])
    corrected = sample(1, good=False, correction=wanted, reward=0.0)
    others = [LONG.format(topic) for topic in TOPICS[2:4]]
    worse = tuple({"role": "assistant", "content": text} for text in others)
    preferred = sample(2, good=True, worse=worse)
    found = learnt(backend, "dpo", [corrected, preferred, sample(3, good=True)])
    texts = [[backend.renderer.text(reply.tokens.reply) for reply in lesson.replies] for lesson in found]
    assert texts == [[wanted, LONG.format(TOPICS[1])], *([SHORT.format(TOPICS[2]), text] for text in others)]
    assert [[reply.good for reply in lesson.replies] for lesson in found] == [[True, False]] * 3


@pytest.mark.parametrize(
    ("objective", "missing"),
    [("dpo", "no pair is left"), ("critique", "no comment is left"), ("sft", "one-sided")],
)
def test_objectives_say_what_they_lack(backend: TorchPeftBackend, objective: Objective, missing: str) -> None:
    with pytest.raises(NotTrainable, match=missing):
        learnt(backend, objective, [sample(1, good=False)])


@pytest.mark.parametrize("rewards", [(), (0.0, 0.0), (1.0, 0.5), (-1.0, -1.0, 0.0)])
def test_one_sided_or_missing_ratings_are_refused(rewards: tuple[float, ...]) -> None:
    with pytest.raises(NotTrainable, match="rate some answers"):
        check_classes(rewards, "mis_po", Hyperparameters())


def test_one_sided_ratings_pass_with_a_kl_penalty_and_both_kinds_without() -> None:
    check_classes([-1.0, -0.5], "mis_po", Hyperparameters(kl_beta=0.1))
    check_classes([0.5, -1.0], "kto", Hyperparameters())
