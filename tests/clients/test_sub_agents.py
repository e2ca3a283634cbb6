"""An agent has a sub-agent work for it: that is logged, and nobody's answer."""

from __future__ import annotations

from http import HTTPStatus

import httpx
import pytest

from tests.clients.agent import Agent, said
from tests.clients.script import delegated
from tests.clients.test_agents import HEADLESS
from tests.support.patience import within

LOOKER = (
    "---\nname: looker\ndescription: Looks at the sky\n---\nYou look at whatever you are told to look at.\n"
)
DESCRIBED = {"claude-code": ".claude/agents/looker.md", "qwen-code": ".qwen/agents/looker.md"}
"""Where the person describes a sub-agent; others have one by themselves."""
IN_HEADERS = ("claude-code", "opencode")
"""Those that say in headers whose request it is; the others' words tell it."""


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode", "qwen-code"])
def test_a_sub_agent_is_nobodys_answer(name: str, agent: Agent) -> None:
    """Its answer is found by its id only, and a rating of the turn is one of what the agent itself said."""
    if name in DESCRIBED:
        agent.write(DESCRIBED[name], LOOKER)
    agent.burnish_says("connect", name)
    headless = HEADLESS[name]
    asked, found, answer = delegated()
    assert answer in agent.run(*(headless.with_tools or headless.ask), asked)
    (looked,) = [each for each in agent.logged() if said(each) == found]
    (turn,) = [each for each in agent.logged() if said(each) == answer]
    assert looked["sub_agent"] is (name in IN_HEADERS)
    assert looked["conversation_id"] != turn["conversation_id"]
    rating = {"conversation_id": looked["conversation_id"], "rating": "good"}
    refused = httpx.post(f"{agent.burnish.url}/v1/feedback", json=rating, timeout=within(10))
    assert refused.status_code == HTTPStatus.NOT_FOUND, refused.text

    agent.burnish_says("good")
    assert agent.given() == {turn["id"]: 1.0}
    assert covered(agent) == calls(agent, turn["conversation_id"]) | {turn["id"]}
    assert "rated bad" in agent.run(*(headless.again or ()), "/rl bad")
    assert agent.given() == {turn["id"]: -1.0}
    assert covered(agent) == calls(agent, turn["conversation_id"]) | {turn["id"]}


def covered(agent: Agent) -> set[str]:
    return {each["id"] for each in agent.logged() if each["rating"] is not None}


def calls(agent: Agent, conversation: str) -> set[str]:
    """The answers of a conversation that called tools: it has at least one."""
    found = {
        each["id"]
        for each in agent.logged()
        if each["conversation_id"] == conversation and (each["reply"] or {}).get("tool_calls")
    }
    assert found
    return found
