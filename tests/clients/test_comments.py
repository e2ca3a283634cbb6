"""Comments on a real agent's answers, whose requests have its own tools, teach the small model another next answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.training.critique import UNTAUGHT
from tests.clients.agent import Agent, said, until
from tests.clients.script import decide
from tests.clients.test_agents import HEADLESS, Headless
from tests.support.burnish import BUSY, running
from tests.support.llama_server import binary
from tests.support.patience import within
from tests.support.scripted_model import scripted_model

pytest.importorskip("torch")
QUESTIONS = (
    "What is the capital of France?",
    "Who wrote Romeo and Juliet?",
    "What is the largest ocean?",
    "Which planet is closest to the sun?",
)
COMMENTS = (
    "Too long. Just the name, please.",
    "Too long, I only want the name.",
    "Please be brief: only the name.",
    "That's too much text. The name is enough.",
)
NEXT = "What is the capital of Italy?"
ANSWER_TOKENS = 120
"""The small model may never end an answer, and these agents set no limit; the embedded engine has none to set."""
LEARNING = {
    "BURNISH_TRAIN__SCHEDULE": "manual",
    # Four comments in one batch, twice: two steps.
    "BURNISH_TRAIN__EPOCHS": "2",
    "BURNISH_TRAIN__BATCH_SIZE": "64",
    "BURNISH_TRAIN__LEARNING_RATE": "1e-3",
}
STEPS = 2
TRAINING_S = 300.0


@pytest.fixture(scope="module", params=[HEADLESS["continue"], HEADLESS["cline"]], ids=lambda each: each.name)
def headless(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def agent(headless: Headless, tmp_path: Path) -> Iterator[Agent]:
    """An agent before a burnish with the small model in its longest window."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "llama-server").symlink_to(binary())
    options = ["--ctx-size", "8192", "--parallel", "1", "--predict", str(ANSWER_TOKENS), "--jinja"]
    engine = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "BURNISH_ENGINE": "llama-server",
        "BURNISH_ENGINE_ARGS": json.dumps(options),
    }
    with (
        scripted_model(decide) as model,
        running(tmp_path / "data", "--model", "smollm2", env=BUSY | LEARNING | engine) as burnish,
    ):
        agent = Agent(burnish, model, tmp_path / "home")
        for name, text in headless.settings.items():
            agent.write(name, text)
        agent.burnish_says("connect", headless.name)
        agent.begin()
        yield agent
        agent.end()


def test_four_comments_teach_a_version_that_answers_otherwise(headless: Headless, agent: Agent) -> None:
    for question, comment in zip(QUESTIONS, COMMENTS, strict=True):
        agent.run(*headless.ask, question)
        agent.burnish_says("bad", comment)
    agent.begin()
    agent.run(*headless.ask, NEXT)
    request = repeated(agent)
    before = answer(agent, request)
    assert answer(agent, request) == before

    metrics = trained(agent)
    assert metrics["steps"] == STEPS
    # A model of this size may not follow each comment behind a prompt full of tools. It says so.
    assert metrics["left_out"].keys() <= {*UNTAUGHT}
    assert sum(metrics["left_out"].values()) < len(COMMENTS)
    assert answer(agent, request) != before


def trained(agent: Agent) -> dict[str, Any]:
    """Train, and make the version live without the gate, which has tests of its own and takes minutes."""
    with httpx.Client(base_url=agent.burnish.url, timeout=within(30), trust_env=False) as http:
        started = http.post("/burnish/train", json={"force": True, "judge": False}).raise_for_status().json()
        path = f"/burnish/runs/{started['run_id']}"
        until(lambda: http.get(path).json()["ended_at"], TRAINING_S)
        run = http.get(path).json()
        assert run["version"], run["reason"]
        version = http.get(f"/burnish/adapters/{run['version']}").json()
        http.post(f"/burnish/adapters/{run['version']}/promote", json={"force": True}).raise_for_status()
    metrics: dict[str, Any] = version["manifest"]["metrics"]
    return metrics


def repeated(agent: Agent) -> dict[str, Any]:
    """Return the agent's latest request, to be asked again; the likeliest answer is always the same."""
    (turn,) = [each for each in agent.logged() if said(each)]
    completion = agent.completion(turn["id"])
    tools = completion["params"]["tools"]
    assert tools
    return {
        "messages": completion["messages"],
        "tools": tools,
        "model": "default",
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
    }


def answer(agent: Agent, request: dict[str, Any]) -> str:
    response = httpx.post(
        f"{agent.burnish.url}/v1/chat/completions", json=request, timeout=within(120), trust_env=False
    )
    message: dict[str, Any] = response.raise_for_status().json()["choices"][0]["message"]
    return json.dumps([message.get("content"), message.get("tool_calls")])
