"""Episodes of an agent: what each step is worth, what is compared, and what a run learns from it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.training.compared import DIFFERENT
from burnish.training.dataset import LeftOut
from burnish.training.episodes import ALIKE, ALONE, WORSE, valued, worths
from burnish.training.errors import NotTrainable
from burnish.training.job import Episode, EpisodeStep, Hyperparameters, JobDirectory, Objective, PromptRead
from burnish.training.loop import train
from tests.support.jobs import Base, context, job_spec, sample
from tests.training.test_stages import MUCH, shift


def step(name: str, reward: float = 0.0, reply: str = "hit", **more: Any) -> EpisodeStep:
    usual: dict[str, Any] = {"messages": context("Rain"), "finished": True, "behaviour_version": 0}
    message = {"role": "assistant", "content": reply}
    return EpisodeStep(completion_id=name, reply=message, reward=reward, **usual, **more)


def episode(name: str, group: str, whole: float, *rewards: float, reply: str = "hit") -> Episode:
    steps = tuple(step(f"{name}.{place}", reward, reply) for place, reward in enumerate(rewards))
    return Episode(rollout=name, group=group, reward=whole, steps=steps)


def pulls(
    episodes: list[Episode],
    objective: Objective = "rloo",
    left_out: LeftOut | None = None,
    discount: float = 1.0,
) -> dict[str, float]:
    config = Hyperparameters(discount=discount)
    found = valued(episodes, objective, config, left_out or LeftOut())
    return {each.step.completion_id: each.advantage for each in found}


def test_a_step_is_worth_what_comes_from_then_on() -> None:
    assert worths(episode("a", "g", 10.0, 1.0, 0.0, 2.0), 1.0) == [13.0, 12.0, 12.0]
    assert worths(episode("a", "g", 10.0, 1.0, 0.0, 2.0), 0.5) == [4.0, 6.0, 12.0], "the whole comes last"


def test_with_a_discount_the_shorter_of_two_successes_is_the_better_one() -> None:
    both = [episode("short", "g", 0.0, 0.0, 1.0), episode("long", "g", 0.0, 0.0, 0.0, 1.0)]
    counted = LeftOut()
    assert pulls(both, left_out=counted) == {}
    assert counted.counts[ALIKE] == 2
    found = pulls(both, discount=0.5)
    assert found["short.0"] == 0.25
    assert found["long.0"] == -0.25


def test_rloo_compares_with_the_other_attempts_at_the_same_step() -> None:
    episodes = [episode("a", "g", 1.0, 0.0, 0.0), episode("b", "g", -1.0, 0.0), episode("c", "g", 0.0, 0.0)]
    found = pulls(episodes)
    assert found == {"a.0": 1.5, "a.1": 1.5, "b.0": -1.5}, "c is as good as the mean of the others"


def test_an_early_mistake_is_not_blamed_on_later_steps() -> None:
    blamed = pulls([episode("a", "g", 0.0, -1.0, 1.0), episode("b", "g", 0.0, 0.0, 0.0)])
    assert blamed == {"a.1": 1.0, "b.1": -1.0}, "both came to 0, and the second step made the difference"


def test_equal_groups_and_lone_attempts_are_dropped_and_counted() -> None:
    left_out = LeftOut()
    alike = [episode("a", "g", 1.0, 0.0), episode("b", "g", 1.0, 0.0)]
    assert pulls([*alike, episode("c", "h", 1.0, 0.0)], left_out=left_out) == {}
    assert left_out.counts == {ALIKE: 2, ALONE: 1}


def test_ppo_compares_lone_attempts_with_those_of_other_groups() -> None:
    found = pulls([episode("a", "g", 1.0, 0.0), episode("b", "h", -1.0, 0.0)], "ppo")
    assert found["a.0"] == -found["b.0"] > 0


def test_a_reward_that_is_no_number_stops_the_run_in_words() -> None:
    broken = episode("a", "g", 0.0, 0.0).model_copy(update={"reward": math.nan})
    with pytest.raises(NotTrainable, match="no finite numbers"):
        pulls([broken, episode("b", "g", 1.0, 0.0)])


REWARD = st.floats(-10, 10)


@given(st.lists(st.tuples(REWARD, st.lists(REWARD, min_size=1, max_size=4)), min_size=2, max_size=5))
def test_what_all_attempts_get_alike_changes_nothing(played: list[tuple[float, list[float]]]) -> None:
    def with_bonus(bonus: float) -> dict[str, float]:
        return pulls([episode(str(n), "g", whole + bonus, *rest) for n, (whole, rest) in enumerate(played)])

    plain, shifted = with_bonus(0.0), with_bonus(5.0)
    for name in plain.keys() | shifted.keys():
        assert plain.get(name, 0.0) == pytest.approx(shifted.get(name, 0.0), abs=1e-6)


def job_of(path: Path, base: Base, episodes: list[Episode], **changes: Any) -> JobDirectory:
    job = JobDirectory(path)
    job.write_job(job_spec(base, **({"objective": "rloo", "task": "test"} | changes)), [], episodes)
    return job


@pytest.mark.parametrize(("objective", "bad", "left_out"), [("rloo", 8, {}), ("sft", 0, {WORSE: 8})])
def test_a_run_makes_the_replies_of_better_attempts_likelier(
    tmp_path: Path, tiny: Base, tiny_weights: Path, *, objective: str, bad: int, left_out: dict[str, int]
) -> None:
    episodes = [
        episode(f"{way}{n}", f"g{n}", reward, 0.0, reply=reply)
        for n in range(8)
        for way, reply, reward in (("good", "stick now", 1.0), ("bad", "hit again", -1.0))
    ]
    config = Hyperparameters(epochs=4, **MUCH)
    job = job_of(tmp_path / "job", tiny, episodes, objective=objective, hyperparameters=config)
    result = train(job)
    assert (result.episodes, result.reward, result.left_out) == (16, 0.0, left_out)
    assert (result.good, result.bad) == (8, bad)
    told = [sample(0, good=True, reply=each.steps[0].reply) for each in episodes[:2]]
    better, worse = shift(job, tiny_weights, told)
    assert better > worse + 0.05
    assert objective == "rloo" or better > 0.05


def test_captured_tokens_are_learnt_as_the_engine_saw_them(tmp_path: Path, tiny: Base) -> None:
    seen: dict[str, Any] = {"prompt_ids": (5, 6, 7), "reply_ids": (8, 9)}
    episodes = [
        Episode(rollout=name, group="g", reward=reward, steps=(step(name, **seen),))
        for name, reward in (("a", 1.0), ("b", -1.0))
    ]
    result = train(job_of(tmp_path / "job", tiny, episodes))
    assert result.good == result.bad == 1


def test_a_step_whose_prompt_the_engine_read_otherwise_is_left_out(tmp_path: Path, tiny: Base) -> None:
    read = PromptRead(format="chat", tokens=1)
    episodes = [
        Episode(rollout=name, group="g", reward=reward, steps=(step(name), step(f"{name}.1", read=read)))
        for name, reward in (("a", 1.0), ("b", -1.0))
    ]
    result = train(job_of(tmp_path / "job", tiny, episodes))
    assert (result.good, result.bad, result.left_out) == (1, 1, {DIFFERENT: 2})


def test_an_objective_for_ratings_is_refused(tmp_path: Path, tiny: Base) -> None:
    episodes = [episode("a", "g", 1.0, 0.0), episode("b", "g", 0.0, 0.0)]
    with pytest.raises(NotTrainable, match="ppo, rloo, grpo, gspo, sft"):
        train(job_of(tmp_path / "job", tiny, episodes, objective="mis_po"))
