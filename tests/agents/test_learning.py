"""A tiny model imitates, plays, learns from rewards and is judged: the whole way, with real training."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from burnish.agents import GymAgent, Refused, Rules
from tests.agents.conftest import walk
from tests.support.burnish import Burnish, running
from tests.support.patience import within
from tests.support.program import call
from tests.support.tiny_gguf import random_llama

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = {"SCHEDULE": "manual", "EPOCHS": "1", "REHEARSED": "0", "ADVANCED__KL_STOP": "10"}
HELD_OUT = range(1000, 1008)


class Luck:
    """Rewards two steps at random, whatever is done: attempts at a seed differ."""

    dice = random.Random(0)

    def reset(self, *, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        self.left = 2
        return seed or 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self.left, self.dice.random(), not self.left, False, {}


class Anything(GymAgent):
    """Takes any reply for an action."""

    def get_system_prompt(self) -> str:
        return "Say something."

    def format_observation(self, observation: int) -> str:
        return f"Number {observation}."

    def extract_action(self, response: str) -> int:
        return 1


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("tiny")
    gguf = random_llama(folder / "tiny.gguf")
    env = {f"BURNISH_TRAIN__{name}": value for name, value in SETTINGS.items()}
    with running(folder / "data", "--model", str(gguf), env=env) as burnish:
        yield burnish


@pytest.fixture
def agent(tiny: Burnish) -> Iterator[Anything]:
    found = Anything(tiny.url, task="luck", batch=6, rules=Rules(max_tokens=4, memory=0))
    yield found
    found.close()


def test_an_agent_imitates_plays_learns_and_is_judged(agent: Anything, tiny: Burnish) -> None:
    with pytest.raises(Refused, match="no rollout of the task 'luck' is ready"):
        agent.learn()
    early = Anything(tiny.url, task="too early", rules=Rules(max_tokens=1, memory=0))
    with pytest.raises(Refused, match="version 0 is live, and none is newer: train first"):
        early.judge(Luck, [1])
    early.close()

    warmed = agent.warm_start([[(number, "right")] for number in range(8)])
    assert (warmed["demonstrations"], warmed["samples"], warmed["good"]) == (8, 8, 8)
    assert (warmed["version"], warmed["status"]) == (1, "candidate")

    statistics: dict[str, Any] = {}
    env = Luck()
    for number in range(6):
        assert not statistics, "the batch is full with the sixth episode"
        statistics = walk(agent, number // 3, env)
    assert (statistics["episodes"], statistics["samples"], statistics["version"]) == (6, 12, 2)
    found = httpx.get(f"{tiny.url}/v1/rollouts?task=luck", timeout=within(10)).json()
    rollouts = found["data"]
    assert {each["version"] for each in rollouts} == {1}, "the newest version plays, live or not"
    assert {each["learnt_in"] for each in rollouts} == {statistics["run"]}
    versions = httpx.get(f"{tiny.url}/burnish/adapters", timeout=within(10)).json()
    assert versions["live"] == 0
    newest = versions["adapters"][-1]
    assert (newest["version"], newest["parent"], newest["ratings"], newest["episodes"]) == (2, 1, 0, 6)
    assert newest["reward"] == pytest.approx(statistics["reward"])
    assert "6 rollouts, mean reward" in call("adapters", "list", url=tiny.url).stdout

    judged = agent.judge(Luck, HELD_OUT)
    assert judged["status"] in ("live", "candidate", "rejected")
    assert (judged["candidate"].versions, judged["live"].versions) == ([2], [0])
    assert len(judged["candidate"].outcomes) == len(HELD_OUT)
    assert judged["version"] == 2
    with pytest.raises(Refused, match="no rollout of the task 'luck' is ready"):
        agent.learn()  # held-out seeds teach nothing
