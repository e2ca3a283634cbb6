"""One key rates in Claude Code; and notes as other channels write them move OpenClaw's plugin to rate and take back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.proxy.cli.hook import OFFER
from tests.clients.agent import CLIENTS, Agent
from tests.clients.script import question
from tests.clients.test_agents import said
from tests.support.burnish import Burnish
from tests.support.scripted_model import ScriptedModel

DRIVER = Path(__file__).with_name("notes.mjs")
PLUGIN = Path(__file__).parents[2] / "proxy" / "agents" / "openclaw_plugin"
ASK = ("claude", "-p", "--output-format", "stream-json", "--verbose")


@pytest.fixture
def agent(burnish: Burnish, model: ScriptedModel, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(burnish, model, tmp_path)
    agent.begin()
    yield agent
    agent.end()


def ratings(agent: Agent) -> dict[str, float]:
    texts = {each["id"]: said(each) for each in agent.logged()}
    return {texts[answer]: rating for answer, rating in agent.given().items()}


def test_one_key_rates_in_claude_code(agent: Agent) -> None:
    agent.env["BURNISH_FEEDBACK__MODE"] = "prompt"
    before = agent.files()
    assert "a line with the keys + (good) and - (bad)" in agent.burnish_says("connect", "claude-code")
    (asked, first), (asked_then, second), (asked_last, third) = question(), question(), question()
    assert OFFER in agent.run(*ASK, asked)
    assert "rated bad" in agent.run(*ASK, "--continue", "-")
    agent.run(*ASK, "--continue", asked_then)
    assert "rated good" in agent.run(*ASK, "--continue", " + ")
    agent.run(*ASK, "--continue", asked_last)  # says nothing about the answer before
    assert ratings(agent) == {first: -1.0, second: 1.0}
    assert third in [said(each) for each in agent.logged()]
    told = [text for each in agent.model.asked for text in each.said]
    assert not {"+", "-", " + "} & set(told)  # neither the keys nor the offer reach the model
    assert not any(OFFER in text for text in told)
    agent.burnish_says("disconnect", "claude-code")
    assert agent.files().get(".claude/settings.json") == before.get(".claude/settings.json")


def test_an_agent_without_a_choice_says_so(agent: Agent) -> None:
    agent.env["BURNISH_FEEDBACK__MODE"] = "prompt"
    assert "Codex can't show a choice after an answer" in agent.burnish_says("connect", "codex")


NOTES = {
    "discord": "discord:reaction:{verb}:{message}:{person}:{emoji}",
    "slack": "slack:reaction:{verb}:c1:{message}:{person}:{emoji}:ev{count}",
    "slack of a team": "slack:reaction:t1:{verb}:c1:{message}:{person}:{emoji}:ev{count}",
}


@pytest.mark.parametrize("channel", NOTES)
def test_taking_a_reaction_back_takes_its_rating_back(agent: Agent, channel: str) -> None:
    """OpenClaw's own queue of notes, and its plugin; each step is a note, and a restart of the plugin is among them."""
    up, down = ("thumbsup", "thumbsdown") if channel.startswith("slack") else ("👍", "👎")
    asked, answer = question()
    body = {"model": "default", "messages": [{"role": "user", "content": asked}]}
    response = httpx.post(f"{agent.burnish.url}/v1/chat/completions", json=body, timeout=60).json()["id"]
    steps: list[tuple[str, str, str, dict[str, float]]] = [
        ("added", "ann", up, {answer: 1.0}),
        ("added", "bob", down, {answer: 1.0}),  # it isn't his
        ("removed", "bob", up, {answer: 1.0}),
        ("removed", "ann", down, {answer: 1.0}),  # there was none
        ("restart", "", "", {answer: 1.0}),
        ("removed", "ann", up, {}),
        ("added", "ann", down, {answer: -1.0}),
        ("added", "ann", "+1", {answer: 1.0}),  # not 👍 again: OpenClaw notes the same reaction once a turn
        ("removed", "ann", "+1", {answer: -1.0}),  # the other reaction is still there
    ]
    folder = agent.home / "plugin"
    shutil.copytree(PLUGIN, folder)
    (agent.home / "node_modules").symlink_to(CLIENTS / "node_modules")
    said_of = {
        "channel": channel.split(maxsplit=1)[0],
        "url": agent.burnish.url,
        "response": response,
        "text": answer,
    }
    with agent.running("node", str(shutil.copy(DRIVER, folder)), json.dumps(said_of), talks=True) as driver:
        assert driver.stdin and driver.stdout
        for count, (verb, person, emoji, expected) in enumerate(steps):
            key = NOTES[channel].format(verb=verb, message="m1", person=person, emoji=emoji, count=count)
            step: dict[str, Any] = {"restart": True} if verb == "restart" else {"key": key}
            driver.stdin.write(json.dumps(step) + "\n")
            driver.stdin.flush()
            assert driver.stdout.readline() == "looked\n"
            assert ratings(agent) == expected, (count, verb, person)
