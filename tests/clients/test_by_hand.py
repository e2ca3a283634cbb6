"""aider, which is told by environment variables: what `burnish connect` prints works as it stands."""

from __future__ import annotations

import shlex
import sys

from tests.clients.agent import Agent
from tests.clients.script import question
from tests.support.patience import within

PLAIN = shlex.split(
    "--no-git --no-check-update --no-analytics --no-show-release-notes --no-show-model-warnings"
)
"""What makes it read lines, and ask about nothing but the chat."""


def test_aider(agent: Agent) -> None:
    """It answers, streamed; /rl with a space before it rates the answer before, as does burnish in its own shell."""
    (asked, first), (asked_then, second), (asked_last, third) = question(), question(), question()
    printed = talk(
        agent,
        asked,
        " /rl bad too long",
        asked_then,
        f"/run {sys.executable} -m burnish good",
        "n",  # its output is nothing to talk about
        asked_last,
        " /rl 4",
    )
    assert "rated bad with your comment" in printed
    assert "rated 4 of 5" in printed
    assert agent.ratings() == {first: -1.0, second: 1.0, third: 0.5}
    assert all(each.body["stream"] for each in agent.model.asked if asked in str(each.body))
    assert not any("/rl" in str(each.body) for each in agent.model.asked if asked_last in str(each.body))


def talk(agent: Agent, *lines: str) -> str:
    """Type lines into aider, started as ``burnish connect`` says; return what it printed."""
    command = shlex.split(agent.burnish_says("connect", "aider"))
    with agent.running("env", *command, *PLAIN, talks=True) as aider:
        printed, _ = aider.communicate("\n".join(lines) + "\n", timeout=within(90))
    return printed
