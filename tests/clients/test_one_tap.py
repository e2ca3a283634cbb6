"""One key rates in Claude Code; and notes as other channels write them move OpenClaw's plugin to rate and take back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.parts.connect.hook import OFFER
from tests.clients.agent import CLIENTS, Agent, said
from tests.clients.script import question
from tests.support.burnish import Burnish, running
from tests.support.llama_server import free_port
from tests.support.patience import within
from tests.support.scripted_model import ScriptedModel

DRIVER = Path(__file__).with_name("notes.mjs")
PLUGIN = Path(__file__).parents[2] / "parts" / "connect" / "openclaw_plugin"
ASK = ("claude", "-p", "--output-format", "stream-json", "--verbose")


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
    assert agent.ratings() == {first: -1.0, second: 1.0}
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
    response, answer = answered(agent)
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
    with plugin(agent, channel.split(maxsplit=1)[0], agent.burnish.url, response, answer) as told:
        for count, (verb, person, emoji, expected) in enumerate(steps):
            key = NOTES[channel].format(verb=verb, message="m1", person=person, emoji=emoji, count=count)
            assert told({"restart": True} if verb == "restart" else {"key": key}) == ["looked"]
            assert agent.ratings() == expected, (count, verb, person)


REACTION = "telegram:reaction:{}:m1:ann:👍"


def test_no_reaction_is_lost_while_burnish_is_away(model: ScriptedModel, tmp_path: Path) -> None:
    """They wait in order, although a turn takes OpenClaw's notes away, and the plugin starts again."""
    with alone(model, tmp_path) as (agent, told, answer, again):
        told({"key": REACTION.format("added")})
        assert agent.ratings() == {answer: 1.0}
        agent.burnish.kill()
        for step in ({"key": REACTION.format("removed")}, {"turn": True}, {"restart": True}):
            told(step)
        with again():
            told({})
            assert agent.ratings() == {}
            told({"key": REACTION.format("added").replace("👍", "👎")})
            assert agent.ratings() == {answer: -1.0}


def test_a_reaction_that_came_and_went_while_burnish_was_away(model: ScriptedModel, tmp_path: Path) -> None:
    with alone(model, tmp_path) as (agent, told, _, again):
        agent.burnish.stop()
        told({"key": REACTION.format("added")})
        told({"key": REACTION.format("removed")})
        with again():
            told({})
            assert agent.ratings() == {}
            [undone] = httpx.get(f"{agent.burnish.url}/v1/feedback", timeout=within(60)).json()["data"]
            assert undone["undone_at"], "it was given, and taken back"


def test_two_quick_taps_count_once_and_the_last_one_wins(agent: Agent) -> None:
    response, answer = answered(agent)
    with plugin(agent, "telegram", agent.burnish.url, response, answer) as told:
        assert told({"buttons": ["good", "bad"]}) == ["looked", "👍 ✓ 👎", "👍 👎 ✓"]
        assert agent.ratings() == {answer: -1.0}
        assert told({"buttons": ["bad"]}) == ["looked", "👍 👎"]
        assert agent.ratings() == {}  # the first tap doesn't count again


def test_a_tap_that_burnish_refuses_says_so(agent: Agent) -> None:
    with plugin(agent, "telegram", agent.burnish.url, "chatcmpl-unknown", "an answer") as told:
        [_, seen] = told({"buttons": ["good"]})
        assert seen.startswith("burnish: not rated: burnish refuses: ") and "chatcmpl-unknown" in seen


def test_a_change_that_fails_leaves_the_rating_before(model: ScriptedModel, tmp_path: Path) -> None:
    with alone(model, tmp_path) as (agent, told, answer, again):
        told({"buttons": ["good"]})
        agent.burnish.kill()
        assert told({"buttons": ["bad"]}) == ["looked", "burnish: not rated: burnish does not answer"]
        with again():
            told({})
            assert agent.ratings() == {answer: 1.0}


def test_a_reaction_that_rates_nothing_is_in_the_log(agent: Agent) -> None:
    response, answer = answered(agent)
    with plugin(agent, "telegram", agent.burnish.url, response, answer) as told:
        told({"key": REACTION.format("added").replace("ann", "bob")})
    assert "m1:bob:👍 rates nothing yet" in (agent.home / "said.txt").read_text()


Told = Callable[[dict[str, Any]], list[str]]


@contextmanager
def alone(
    model: ScriptedModel, tmp_path: Path
) -> Iterator[tuple[Agent, Told, str, Callable[[], AbstractContextManager[Burnish]]]]:
    """A burnish that may be ended and started again, and OpenClaw's plugin with one answer."""
    flags = ("--no-train", "--upstream", model.url, "--port", str(free_port()))
    start = partial(running, tmp_path / "data", *flags)
    with start() as burnish:
        agent = Agent(burnish, model, tmp_path / "home")
        agent.begin()
        response, answer = answered(agent)
        with plugin(agent, "telegram", burnish.url, response, answer) as told:
            yield agent, told, answer, start


def answered(agent: Agent) -> tuple[str, str]:
    """Ask something new; return the id of the answer, and the answer."""
    asked, answer = question()
    body = {"model": "default", "messages": [{"role": "user", "content": asked}]}
    response = httpx.post(f"{agent.burnish.url}/v1/chat/completions", json=body, timeout=within(60))
    return response.json()["id"], answer


@contextmanager
def plugin(agent: Agent, channel: str, url: str, response: str, text: str) -> Iterator[Told]:
    """OpenClaw's plugin, with one answer in message m1 to Ann; takes steps, and returns what each one shows."""
    folder = agent.home / "plugin"
    shutil.copytree(PLUGIN, folder)
    (agent.home / "node_modules").symlink_to(CLIENTS / "node_modules")
    given = json.dumps({"channel": channel, "url": url, "response": response, "text": text})
    with agent.running("node", str(shutil.copy(DRIVER, folder)), given, talks=True) as driver:
        assert driver.stdin and driver.stdout

        def told(step: dict[str, Any]) -> list[str]:
            assert driver.stdin and driver.stdout
            driver.stdin.write(json.dumps(step) + "\n")
            driver.stdin.flush()
            return driver.stdout.readline().rstrip("\n").split(" | ")

        yield told
