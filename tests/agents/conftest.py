"""A real burnish before a model by script, and a small environment with an agent for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from burnish.agents import GymAgent, Rules, find_action
from burnish.agents.choices import QUESTION
from tests.support.burnish import running
from tests.support.patience import within
from tests.support.scripted_model import Asked, Fails, ScriptedModel, scripted_model
from tests.support.wires import Says

ACTIONS = {"left": -1, "right": 1}
GOAL = 2
Json = dict[str, Any]


@dataclass
class Corridor:
    """Begins at 0; two steps to the right are worth 1, and each step in the wrong direction costs .1."""

    place: int = 0
    closed: bool = False
    seeds: list[int | None] = field(default_factory=list)

    def reset(self, *, seed: int | None = None) -> tuple[int, Json]:
        self.place = 0
        self.seeds.append(seed)
        return self.place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, Json]:
        self.place += action
        there = self.place == GOAL
        return self.place, 1.0 if there else min(0.0, action * 0.1), there, False, {}

    def close(self) -> None:
        self.closed = True


class Walker(GymAgent):
    def get_system_prompt(self) -> str:
        return "Walk to the right."

    def format_observation(self, observation: int) -> str:
        return f"You are at {observation}."

    def extract_action(self, response: str) -> int | None:
        return find_action(response, ACTIONS)


def walk(agent: GymAgent, seed: int | None = None, env: Any = None) -> Json:
    """Play an episode as LlamaGym's readme does."""
    env = env or Corridor()
    if seed is not None:
        agent.begin_episode(seed=seed)
    observation, _ = env.reset(seed=seed)
    done = False
    while not done:
        action = agent.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        agent.assign_reward(reward)
        done = terminated or truncated
    return agent.terminate_episode()


@dataclass
class Wire:
    """A burnish that runs, and the model behind it."""

    url: str
    model: ScriptedModel
    agents: list[GymAgent] = field(default_factory=list)

    def says(self, *replies: str | Fails) -> None:
        """Let the model give these replies in turn, and the last one for ever."""
        left = list(replies)

        def decide(asked: Asked) -> Says | Fails:
            if asked.said == (QUESTION,):  # a trial
                return Says("Paris.")
            said = left.pop(0) if len(left) > 1 else left[0]
            return said if isinstance(said, Fails) else Says(said)

        self.model.decide = decide

    def agent(self, kind: type[GymAgent] = Walker, url: str | None = None, **given: Any) -> GymAgent:
        """Return an agent that is closed when the test ends; rules may be named among its settings."""
        rules = {name: given.pop(name) for name in Rules.__dataclass_fields__ if name in given}
        self.agents.append(kind(url or self.url, rules=Rules(**rules), **given))
        return self.agents[-1]

    def get(self, path: str, **query: Any) -> Json:
        answer = httpx.get(f"{self.url}{path}", params=query, timeout=within(10))
        return dict(answer.raise_for_status().json())

    def rollouts(self, task: str) -> list[Json]:
        """Return the rollouts of a task, earliest first."""
        return list(self.get("/v1/rollouts", task=task, limit=200)["data"])[::-1]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with scripted_model(lambda asked: Says("right")) as model:
        flags = ("--upstream", model.url, "--no-train")
        with running(
            tmp_path_factory.mktemp("agents") / "data", *flags, env={"BURNISH_ENGINE": "none"}
        ) as burnish:
            yield Wire(burnish.url, model)


@pytest.fixture
def wire(started: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The running burnish, with a model that walks to the right."""
    for name in [name for name in os.environ if name.startswith("BURNISH_")]:
        monkeypatch.delenv(name)
    started.says("right")
    started.model.asked.clear()
    yield started
    while started.agents:
        started.agents.pop().close()
