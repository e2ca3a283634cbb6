"""Many episodes at once, and environments that fail."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from burnish.agents import NotRunning, TooManyFaults
from burnish.agents.episode import Outcome
from burnish.agents.rollouts import Rollouts, interval
from tests.agents.conftest import Corridor, Wire
from tests.support.burnish import running
from tests.support.patience import within


class Fails(Corridor):
    """Breaks off in the second step, with some seeds."""

    failing: frozenset[int] = frozenset({1})

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self.place == 1 and self.seeds[-1] in self.failing:
            raise ZeroDivisionError("the floor is missing")
        return super().step(action)


def test_attempts_at_a_seed_are_rollouts_of_the_same_seed(wire: Wire) -> None:
    played = wire.agent(task="seeds").play(Corridor, [5, 6], attempts=3, at_once=4)
    assert (len(played.outcomes), played.reward, played.faults) == (6, 1.0, 0)
    rollouts = wire.rollouts("seeds")
    assert sorted(each["seed"] for each in rollouts) == [5, 5, 5, 6, 6, 6]
    assert {each["id"] for each in rollouts} == {each.rollout for each in played.outcomes}
    assert not any(each["held_out"] for each in rollouts)
    (note,) = played.notes
    assert note.startswith("the engine told no token ids ("), "a model by script has none"
    assert note.endswith("so training renders the texts again")


def test_several_episodes_are_played_at_once_and_none_shares_an_environment(wire: Wire) -> None:
    inside: set[int] = set()
    both = threading.Barrier(2, timeout=within(30))
    envs: list[Corridor] = []

    class Together(Corridor):
        def reset(self, *, seed: int | None = None) -> tuple[int, dict[str, Any]]:
            both.wait()  # for ever if they came one after the other
            assert id(self) not in inside
            inside.add(id(self))
            return super().reset(seed=seed)

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            found = super().step(action)
            inside.discard(id(self) if found[2] else 0)
            return found

    def make() -> Corridor:
        envs.append(Together())
        return envs[-1]

    played = wire.agent().play(make, range(4), at_once=2, held_out=True)
    assert (played.faults, len(envs)) == (0, 2)
    assert all(env.closed for env in envs)


def test_an_environment_that_raises_costs_its_episode_only(wire: Wire) -> None:
    played = wire.agent(task="raises").play(Fails, [0, 1, 2], held_out=True)
    assert (len(played.outcomes), played.faults, played.reward) == (3, 1, 1.0)
    assert played.notes == (
        "1 episodes broke off and don't count; the first: ZeroDivisionError: the floor is missing",
    )
    by_seed = {each["seed"]: each for each in wire.rollouts("raises")}
    assert by_seed[1]["status"] == "ended"
    assert by_seed[1]["rewards"] == [], "nothing is learnt from what broke off"
    assert by_seed[0]["reward"] == 1.0


def test_too_many_faults_stop_it_with_the_reason_and_the_others_are_kept(wire: Wire) -> None:
    class Broken(Fails):
        failing = frozenset(range(1, 100))

    with pytest.raises(
        TooManyFaults, match=r"3 of \d+ episodes broke off, and most_faults is 2; the first: ZeroDiv"
    ):
        wire.agent(task="broken").play(Broken, range(100), at_once=1, most_faults=2)
    rollouts = wire.rollouts("broken")
    assert len(rollouts) < 10
    assert {each["status"] for each in rollouts} == {"ended"}
    assert [each["reward"] for each in rollouts if each["seed"] == 0] == [1.0]


@pytest.mark.parametrize("reward", [math.nan, None, "much"])
def test_an_environment_whose_rewards_are_no_numbers_costs_its_episode(wire: Wire, reward: object) -> None:
    class Odd(Corridor):
        def step(self, action: int) -> tuple[int, Any, bool, bool, dict[str, Any]]:
            return self.place, reward, True, False, {}

    played = wire.agent(task="odd").play(Odd, [0], held_out=True)
    (outcome,) = played.outcomes
    assert outcome.fault
    assert f"a finite number, not {reward!r}" in outcome.fault
    assert math.isnan(played.reward)
    assert wire.rollouts("odd")[-1]["rewards"] == []


def test_an_endless_environment_is_cut(wire: Wire) -> None:
    wire.says("left")
    played = wire.agent(max_steps=2).play(Corridor, [0], held_out=True)
    assert played.statistics() | {"cut": 1, "episode_length": 2.0, "faults": 0} == played.statistics()
    assert "1 cut at the step limit" in str(played)


def test_replies_without_an_action_are_counted_and_said(wire: Wire) -> None:
    wire.says("I sing.")
    played = wire.agent(task="sings", invalid_penalty=-1.0).play(Corridor, range(3), held_out=True)
    assert (played.invalid_share, played.reward) == (1.0, -1.0)
    (note,) = played.notes
    assert note.startswith("100% of the replies had no valid action: warm_start")
    played = wire.agent(default_action=1, invalid_penalty=0.0).play(Corridor, range(3), held_out=True)
    assert (played.invalid_share, played.reward) == (1.0, 1.0)


def test_a_group_of_one_is_said(wire: Wire) -> None:
    note = wire.agent().play(Corridor, [1]).notes[0]
    assert "a group of one can't be compared: play with attempts=4" in note


def test_a_gymnasium_environment_is_made_by_its_name(wire: Wire) -> None:
    class Blackjack(type(wire.agent())):  # type: ignore[misc]  # an agent for another environment
        def format_observation(self, observation: tuple[int, int, int]) -> str:
            return f"You have {observation[0]}."

        def extract_action(self, response: str) -> int:
            return 0

    played = wire.agent(Blackjack, task="named").play("Blackjack-v1", range(8), held_out=True)
    assert played.faults == 0
    assert {each.reward for each in played.outcomes} <= {-1.0, 0.0, 1.0}


def test_an_environment_that_exists_already_is_refused_in_words(wire: Wire) -> None:
    with pytest.raises(TypeError, match="a function that makes one, not Corridor"):
        wire.agent().play(Corridor(), [0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1, not 0 and 4"):
        wire.agent().play(Corridor, [0], attempts=0)


def test_if_burnish_is_gone_in_the_middle_the_episodes_before_are_kept(wire: Wire, tmp_path: Path) -> None:
    env = {"BURNISH_ENGINE": "none"}
    flags = ("--upstream", wire.model.url, "--no-train")
    with running(tmp_path / "gone", *flags, env=env) as burnish:

        class Kills(Corridor):
            def reset(self, *, seed: int | None = None) -> tuple[int, dict[str, Any]]:
                if seed == 3:
                    burnish.kill()
                return super().reset(seed=seed)

        agent = wire.agent(url=burnish.url, task="gone")
        with pytest.raises(NotRunning, match="doesn't answer at"):
            agent.play(Kills, range(10), at_once=1, held_out=True)
    with running(tmp_path / "gone", *flags, env=env) as again:
        rollouts = Wire(again.url, wire.model).rollouts("gone")
    assert [(each["seed"], each["reward"]) for each in rollouts] == [(0, 1.0), (1, 1.0), (2, 1.0)]


def outcome(reward: float, **more: Any) -> Outcome:
    return Outcome("ro", 0, 1, reward, 2, 0, **more)


def test_the_interval_is_that_of_a_normal_distribution() -> None:
    assert interval([1.0, -1.0, 1.0, -1.0]) == pytest.approx(1.96 * (4 / 3) ** 0.5 / 2)
    assert interval([1.0]) == math.inf
    played = Rollouts((outcome(1.0), outcome(0.0), outcome(5.0, fault="broke")))
    assert (played.reward, played.faults, played.versions) == (0.5, 1, [1])
    assert "1 broke off" in str(played)
