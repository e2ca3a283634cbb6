"""The same agents in a terminal, where some keep what begins with a slash to themselves unless they know it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.clients.agent import Agent
from tests.clients.script import question
from tests.support.burnish import Burnish
from tests.support.scripted_model import ScriptedModel

HERE = "HERE"
"""In settings: the folder in which the agent works."""


@dataclass(frozen=True)
class Interactive:
    """How an agent is used in a terminal."""

    name: str
    command: tuple[str, ...]
    shows: str
    """What stands there once it takes a question."""
    rate: str = "/rl good nicely put"
    settings: dict[str, str] = field(default_factory=dict)
    """What keeps it from asking about themes and trust first: texts by file."""


CLAUDE = {"hasCompletedOnboarding": True, "projects": {HERE: {"hasTrustDialogAccepted": True}}}
AGENTS = [
    Interactive("claude-code", ("claude",), "❯", settings={".claude.json": json.dumps(CLAUDE)}),
    Interactive(
        "codex",
        ("codex", "--dangerously-bypass-approvals-and-sandbox"),
        "Ask Codex",
        rate=" /rl good nicely put",
        settings={".codex/config.toml": f'[projects."{HERE}"]\ntrust_level = "trusted"\n'},
    ),
    Interactive("opencode", ("opencode",), "Ask anything"),
    Interactive("qwen-code", ("qwen",), "Type your message"),
    Interactive("cline", ("cline", "--tui"), "What can I do for you?"),
]


@pytest.fixture(params=AGENTS, ids=lambda each: each.name)
def interactive(request: pytest.FixtureRequest) -> Interactive:
    return request.param


@pytest.fixture
def agent(
    interactive: Interactive, burnish: Burnish, model: ScriptedModel, tmp_path: Path
) -> Iterator[Agent]:
    agent = Agent(burnish, model, tmp_path / interactive.name)
    for name, text in interactive.settings.items():
        agent.write(name, text.replace(HERE, str(agent.work)))
    agent.burnish_says("connect", interactive.name)
    agent.begin()
    yield agent
    agent.end()


def test_rl_in_a_terminal(interactive: Interactive, agent: Agent) -> None:
    """A question, the answer, a rating typed after it, and what burnish says to that."""
    asked, answer = question()
    with agent.in_terminal(*interactive.command) as terminal:
        terminal.until(interactive.shows)
        terminal.enter(asked)
        terminal.until(answer)
        terminal.enter(interactive.rate)
        terminal.until("rated good with your comment")
    rated = agent.rated()
    assert answer in str(rated["reply"])
    # (In the request for a title, Codex does quote it.)
    assert not any(text.strip().startswith("/rl") for each in agent.model.asked for text in each.said)
