"""One episode after the other, in LlamaGym's shape."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any

import numpy as np
import pytest

from burnish.agents import (
    AgentError,
    BadReward,
    Burnish,
    EpisodeOver,
    NoAction,
    NotRunning,
    Refused,
    Rules,
    StepLimit,
)
from tests.agents.conftest import Walker, Wire, walk
from tests.support.llama_server import free_port
from tests.support.scripted_model import Fails


def test_an_episode_is_a_rollout_with_its_steps_rewards_and_seed(wire: Wire) -> None:
    wire.says("left", "I go right.", '{"action": "right"}', "right")
    assert walk(wire.agent(task="one"), seed=7) == {}
    (rollout,) = wire.rollouts("one")
    assert (rollout["status"], rollout["seed"], rollout["held_out"]) == ("ended", 7, False)
    assert [(each["step"], each["value"]) for each in rollout["rewards"]] == [(0, -0.1), (3, 1.0)]
    assert rollout["reward"] == pytest.approx(0.9)
    assert len(rollout["completions"]) == 4


def test_each_prompt_holds_the_episode_so_far_or_as_much_as_memory_says(wire: Wire) -> None:
    def prompts(memory: int | None) -> list[list[str]]:
        wire.says("left", "right", "right", "right")
        wire.model.asked.clear()
        walk(wire.agent(memory=memory))
        return [[each["content"] for each in asked.body["messages"]] for asked in wire.model.asked[1:]]

    system = "Walk to the right."
    at = ["You are at 0.", "You are at -1.", "You are at 0.", "You are at 1."]
    said = ["left", "right", "right"]
    whole = prompts(None)
    assert whole[0] == [system, at[0]]
    assert whole[3] == [system, at[0], said[0], at[1], said[1], at[2], said[2], at[3]]
    assert prompts(0) == [[system, each] for each in at]
    assert prompts(1)[3] == [system, at[2], said[2], at[3]]


def test_the_models_own_distribution_is_sampled_unless_rules_say_otherwise(wire: Wire) -> None:
    walk(wire.agent(max_tokens=5, sampling={"temperature": 0.5, "seed": 3}))
    body = wire.model.asked[-1].body
    sampled = {"max_tokens": 5, "temperature": 0.5, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": 3}
    assert body | sampled == body


def test_an_engine_that_refuses_foreign_fields_is_asked_without_them(wire: Wire) -> None:
    decide = wire.model.decide
    wire.model.decide = lambda asked: (
        Fails(HTTPStatus.BAD_REQUEST) if "top_k" in asked.body else decide(asked)
    )
    walk(wire.agent(task="plain"))
    (rollout,) = wire.rollouts("plain")
    assert rollout["reward"] == 1.0
    assert len(rollout["completions"]) == 2, "the trial is no step"
    assert wire.model.asked[-1].body["temperature"] == 1.0


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, "1", None, True, 1j])
def test_a_reward_that_is_no_number_is_refused_and_changes_nothing(wire: Wire, reward: object) -> None:
    agent = wire.agent()
    agent.act(0)
    with pytest.raises(BadReward, match=r"a finite number, not .*; step 0 has none"):
        agent.assign_reward(reward)  # type: ignore[arg-type]
    agent.assign_reward(np.float32(0.5))  # type: ignore[arg-type]
    agent.terminate_episode()
    assert wire.rollouts("Walker")[-1]["reward"] == 0.5


def test_a_reward_twice_before_the_first_action_or_after_the_end_is_refused(wire: Wire) -> None:
    agent = wire.agent(task="order")
    with pytest.raises(EpisodeOver, match="no episode is under way"):
        agent.assign_reward(1.0)
    with pytest.raises(EpisodeOver, match="no episode is under way"):
        agent.terminate_episode()
    agent.begin_episode(seed=1)
    with pytest.raises(EpisodeOver, match="before the first action"):
        agent.assign_reward(1.0)
    with pytest.raises(EpisodeOver, match="is under way"):
        agent.begin_episode(seed=2)
    agent.act(0)
    agent.assign_reward(0.25)
    with pytest.raises(BadReward, match=r"step 0 has its reward already, 0.25, and 1 came"):
        agent.assign_reward(1.0)
    agent.terminate_episode()
    with pytest.raises(EpisodeOver, match="no episode is under way"):
        agent.assign_reward(1.0)
    assert [each["reward"] for each in wire.rollouts("order")] == [0.25]


def test_an_episode_that_was_worth_nothing_is_rewarded_all_the_same(wire: Wire) -> None:
    agent = wire.agent(task="nothing")
    agent.act(0)
    agent.assign_reward(0.0)
    agent.terminate_episode()
    assert wire.rollouts("nothing")[0]["reward"] == 0.0


def test_without_a_default_action_an_invalid_reply_ends_the_episode_and_costs_a_penalty(wire: Wire) -> None:
    wire.says("right", "I'd rather sing.")
    agent = wire.agent(task="ends", invalid_penalty=-2.0)
    agent.act(0)
    agent.assign_reward(0.5)
    with pytest.raises(NoAction, match=r"\"I'd rather sing.\" has no valid action .* a reward of -2"):
        agent.act(1)
    with pytest.raises(EpisodeOver, match="terminate_episode"):
        agent.act(1)
    agent.terminate_episode()
    (rollout,) = wire.rollouts("ends")
    assert [(each["step"], each["value"], each["reason"]) for each in rollout["rewards"]] == [
        (0, 0.5, None),
        (1, -2.0, "no valid action in the reply"),
    ]


def test_with_a_default_action_the_episode_goes_on_and_the_penalty_is_added(wire: Wire) -> None:
    wire.says("I'd rather sing.", "right")
    agent = wire.agent(task="on", default_action=-1, invalid_penalty=-0.5)
    walk(agent)
    (rollout,) = wire.rollouts("on")
    assert [each["value"] for each in rollout["rewards"]] == [-0.6, 1.0]


@pytest.mark.parametrize("error", [ValueError("sings"), KeyError("sing"), IndexError("no group")])
def test_extract_action_may_raise_if_there_is_no_action(wire: Wire, error: Exception) -> None:
    class Raising(Walker):
        def extract_action(self, response: str) -> int | None:
            raise error

    with pytest.raises(NoAction, match=r"sing|no group"):
        wire.agent(Raising).act(0)


def test_an_endless_episode_is_cut_and_keeps_its_rewards(wire: Wire) -> None:
    wire.says("left")
    agent = wire.agent(task="endless", max_steps=3)
    with pytest.raises(StepLimit, match="has taken 3 steps"):
        walk(agent)
    agent.terminate_episode()
    (rollout,) = wire.rollouts("endless")
    assert (rollout["status"], len(rollout["completions"])) == ("ended", 3)
    assert rollout["reward"] == pytest.approx(-0.3)


def test_rules_that_make_no_sense_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"max_steps": 0}, {"memory": -1}, {"max_tokens": 0}]
    for rules in wrong:
        with pytest.raises(ValueError, match="at least"):
            Rules(**rules)


def test_a_burnish_that_does_not_run_is_said_in_words(wire: Wire) -> None:
    agent = wire.agent(url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(NotRunning, match=r"doesn't answer at http://127.0.0.1:\d+ .*burnish up") as raised:
        agent.act(0)
    assert isinstance(raised.value, ConnectionError | AgentError)


def test_what_burnish_refuses_comes_with_its_words_and_the_episode_can_be_ended(wire: Wire) -> None:
    agent = wire.agent(task="refused", version=99)
    with pytest.raises(Refused) as raised:
        agent.act(0)
    assert (raised.value.status, raised.value.code) == (409, "not_learning")
    assert agent.terminate_episode() == {}
    assert wire.rollouts("refused") == []


def test_an_engine_that_fails_is_said_in_its_words(wire: Wire) -> None:
    agent = wire.agent(task="fails")
    agent.act(0)
    wire.says(Fails(HTTPStatus.INTERNAL_SERVER_ERROR))
    with pytest.raises(Refused, match="refused with 500"):
        agent.act(1)


def test_the_address_is_that_of_the_environment_unless_it_is_given(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def url_of(given: str | None = None) -> str:
        connection = Burnish(given)
        connection.close()
        return connection.url

    assert url_of() == "http://127.0.0.1:8787"
    monkeypatch.setenv("BURNISH_URL", f"{wire.url}/v1")
    assert url_of() == wire.url
    assert url_of("http://127.0.0.1:1/v1/") == "http://127.0.0.1:1"
