"""Which stages a run has, and that they follow each other in one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.errors import NotTrainable
from burnish.training.job import Hyperparameters, JobDirectory, Sample
from burnish.training.loop import train
from burnish.training.policy_gradient import SAMPLES
from burnish.training.presets import hyperparameters
from burnish.training.stages import IMITATION_EPOCHS, course, demonstrations
from tests.support.jobs import NO_BASE, SHORT, TOPICS, Base, brief_samples, job_spec, sample, write_job

MUCH = {"learning_rate": 3e-3, "batch_size": 4, "kl_stop": 9.0}


def corrected(number: int, **more: Any) -> Sample:
    return sample(number, good=False, correction=SHORT.format(TOPICS[number]), **more)


def stages(samples: Sequence[Sample], objective: str, **settings: Any) -> list[tuple[int, bool]]:
    """Return the passes of each stage, and whether its end can end the run."""
    spec = job_spec(NO_BASE, objective=objective, hyperparameters=Hyperparameters(epochs=3, **settings))
    return [(each.epochs, each.ends_run) for each in course(spec, samples).stages]


def test_a_run_has_one_stage_unless_more_is_wanted() -> None:
    samples = [*brief_samples(4, 0), corrected(1)]
    assert stages(samples, "mis_po") == [(3, True)]
    assert stages(samples, "mis_po", warm_start=True) == [(2, False), (3, True)]
    all_three = stages(samples, "grpo", warm_start=True, successes=True)
    assert all_three == [(2, False), (3, True), (2, True)]


def test_each_round_of_a_policy_that_a_model_rewards_is_a_stage() -> None:
    samples = [sample(n, good=n % 2 == 0) for n in range(40)]
    assert stages(samples, "ppo", rounds=3) == [(3, True)] * 3
    assert stages(samples, "ppo", rounds=3, rewards="ratings") == [(3, True)]


def test_demonstrations_are_corrections_preferred_answers_and_good_ones_of_others() -> None:
    preferred = sample(2, good=False, worse=({"role": "assistant", "content": "x"},))
    foreign = sample(4, good=True, version=None)
    own = sample(6, good=True)
    shown = demonstrations([corrected(1), preferred, foreign, own])
    assert [answer.completion_id for answer in shown] == ["cmpl_1", "cmpl_2", "cmpl_4"]
    assert demonstrations([corrected(1)])[0].reply["content"] == SHORT.format(TOPICS[1])
    assert demonstrations([own, sample(1, good=False)]) == [own], "good answers stand in"


@pytest.mark.parametrize("objective", ["ppo", "rloo", "grpo", "gspo"])
def test_answers_that_all_count_alike_cannot_be_compared(objective: str) -> None:
    with pytest.raises(NotTrainable, match=f"{objective} compares answers, and all of these count alike"):
        stages([sample(0, good=True), sample(2, good=True)], objective)
    assert stages([corrected(1)], objective)


@pytest.fixture
def make(tmp_path: Path, tiny: Base):
    def make(samples: list[Sample], objective: str, name: str = "job", **settings: Any) -> JobDirectory:
        config = Hyperparameters(**MUCH | settings)
        return write_job(tmp_path / name, tiny, samples, objective=objective, hyperparameters=config)

    return make


def two_answers(number: int) -> list[Sample]:
    good = sample(number, good=True)
    return [good, sample(number, good=False, completion_id=f"cmpl_{number}b")]


def shift(job: JobDirectory, weights: Path, samples: list[Sample]) -> list[float]:
    """How much likelier each answer is by the adapter than by the base model, nats per token."""
    scorer = TorchPeftBackend(weights, None, Hyperparameters(), seed=0)
    tokens = [scorer.renderer.conversation(each.messages, (), each.reply, True, 2048) for each in samples]
    pairs = zip(scorer.logps(tokens, job.adapter), scorer.logps(tokens, "bare"), strict=True)
    return [(sum(new) - sum(old)) / len(new) for new, old in pairs]


@pytest.mark.parametrize("objective", ["ppo", "rloo", "grpo", "gspo"])
def test_policy_gradients_raise_the_better_above_the_worse(make, tiny_weights: Path, objective: str) -> None:
    samples = [*two_answers(0), *two_answers(1), sample(2, good=True)]
    job = make(samples, objective, epochs=4, token_band=(0.8, 1.2))
    result = train(job)
    good, bad = shift(job, tiny_weights, samples[:2])
    assert good > bad + 0.05
    assert result.rewards == "ratings, because no reward model could be learnt that orders unseen ones right"
    assert result.left_out == {"no second answer to the same prompt to compare with": 1}
    assert all(-1 <= json.loads(line)["reward"] <= 1 for line in job.metrics.read_text().splitlines())


def test_a_warm_start_learns_what_the_objective_cannot_and_the_run_goes_on(make, tiny_weights: Path) -> None:
    demonstration = corrected(5, reward=0.0)
    plain = make([*brief_samples(4, 0), demonstration], "mis_po", "plain", epochs=1)
    warm = make([*brief_samples(4, 0), demonstration], "mis_po", "warm", epochs=1, warm_start=True)
    assert "cmpl_5" in train(plain).unlearnt
    result = train(warm)
    assert (result.unlearnt, result.left_out) == ({}, {})
    lines = [json.loads(line) for line in warm.metrics.read_text().splitlines()]
    places = [(line["step"], line["stage"], line["epoch"]) for line in lines]
    assert places == [(1, 0, 1), (2, 0, 2), (3, 1, 1)]
    wanted = [sample(5, good=True)]
    assert shift(warm, tiny_weights, wanted)[0] > shift(plain, tiny_weights, wanted)[0] + 0.05


def test_the_warm_start_leaves_half_of_the_way_to_the_objective(make) -> None:
    shown = [corrected(number) for number in (5, 7, 9, 11, 13)]
    settings = {"warm_start": True, "batch_size": 1, "epochs": 1, "kl_stop": 0.01}
    train(job := make([*brief_samples(4, 0), *shown], "mis_po", **settings))
    kinds = [json.loads(line)["stage"] for line in job.metrics.read_text().splitlines()]
    assert 0 < kinds.count(0) < IMITATION_EPOCHS * len(shown)
    assert kinds[-1] == 1


def test_a_run_that_ended_between_stages_comes_to_the_same(make, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [*two_answers(0), *two_answers(1), corrected(5)]
    settings = {"warm_start": True, "epochs": 2, "successes": True}
    whole, torn = (make(samples, "grpo", name, **settings) for name in ("whole", "torn"))
    train(whole)
    step, made = TorchPeftBackend.step, []

    def interrupted(self: TorchPeftBackend, *given: Any) -> dict[str, float]:
        made.append(given)
        if len(made) == 3:
            raise KeyboardInterrupt
        return step(self, *given)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(TorchPeftBackend, "step", interrupted)
        train(torn)
    assert not torn.adapter.exists()
    measured = {"seconds", "cpu_seconds", "peak_rss_bytes"}
    assert train(torn).model_dump(exclude=measured) == whole.result().model_dump(exclude=measured)
    name = "adapter_model.safetensors"
    assert (torn.adapter / name).read_bytes() == (whole.adapter / name).read_bytes()
    assert len(torn.metrics.read_text().splitlines()) == len(whole.metrics.read_text().splitlines())


def test_the_policy_answers_anew_in_each_round_and_a_model_rewards_it(make) -> None:
    questions = [({"role": "user", "content": text},) for text in ("Why?", "How?", "What?")]
    samples = [sample(n, good=n % 2 == 0, messages=questions[n % 3]) for n in range(40)]
    job = make(samples, "rloo", epochs=1, rounds=2)
    result = train(job)
    assert (result.rewards or "").startswith("a reward model of")
    assert result.good + result.bad == 2 * 3 * SAMPLES  # rounds, prompts
    lines = [json.loads(line) for line in job.metrics.read_text().splitlines()]
    assert {line["stage"] for line in lines} == {0, 1}
    assert next(line["ratio_mean"] for line in lines) == pytest.approx(1, abs=0.1), "its own answers at first"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_on_the_small_model_ppo_raises_liked_answers(tmp_path: Path, small: Base, weights: Path) -> None:
    samples = [each for number in range(2) for each in two_answers(number)]
    config = hyperparameters(objective="ppo", epochs=3)
    job = write_job(tmp_path / "job", small, samples, objective="ppo", hyperparameters=config)
    assert train(job).metrics["kl_per_token"] < config.kl_stop
    moved = shift(job, weights, samples)
    assert all(good > bad + 0.02 for good, bad in zip(moved[::2], moved[1::2], strict=True))
    assert sum(moved[::2]) > 0
