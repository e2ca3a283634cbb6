"""OpenClaw in a channel: a reaction on a message rates the answer in it, and only from the person whom it answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.agent import Agent, until
from tests.clients.script import OPENCLAW_CONTEXT, question
from tests.clients.telegram import TOKEN, Telegram, telegram
from tests.clients.test_agents import said
from tests.support.burnish import Burnish
from tests.support.llama_server import free_port
from tests.support.patience import within
from tests.support.scripted_model import ScriptedModel

pytestmark = pytest.mark.xdist_group("channel")  # with -n 2 --dist loadgroup, one gateway for all
ANN, BOB = 7, 8
FRIENDS = -100123
LOOKED_S = 3.0
"""Within which a reaction has been seen: OpenClaw passes it on at once, and the plugin looks every second."""


@pytest.fixture(scope="module")
def channel() -> Iterator[Telegram]:
    with telegram() as running:
        yield running


@pytest.fixture(scope="module")
def agent(
    channel: Telegram, burnish: Burnish, model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agent]:
    """OpenClaw's gateway with a bot in Telegram, connected."""
    agent = Agent(burnish, model, tmp_path_factory.mktemp("openclaw"))
    agent.write(".openclaw/openclaw.json", json.dumps(settings(channel), indent=2))
    agent.env["BURNISH_FEEDBACK__MODE"] = "prompt"
    agent.burnish_says("connect", "openclaw")
    with agent.running("openclaw", "gateway", "run", "--bind", "loopback", "--port", str(free_port())):
        yield agent
    agent.end()


def settings(channel: Telegram) -> dict[str, Any]:
    """A bot that Ann and Bob may talk to, each alone and both in a group."""
    bot = {
        "enabled": True,
        "botToken": TOKEN,
        "apiRoot": channel.url,
        "dmPolicy": "allowlist",
        "allowFrom": [str(ANN), str(BOB)],
        "groups": {str(FRIENDS): {"requireMention": False}},
    }
    return {
        "gateway": {"mode": "local", "auth": {"mode": "none"}},
        "channels": {"telegram": bot},
        "agents": {"defaults": {"heartbeat": {"every": "0m"}}},
        "plugins": {"allow": ["telegram"]},  # it starts with dozens otherwise
    }


def test_a_reaction_rates_the_answer_in_that_very_message(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    (asked, first), (asked_then, second) = question(), question()
    channel.write(ANN, asked)
    message = channel.until_said(first)
    channel.write(ANN, asked_then)
    channel.until_said(second)
    react(agent, channel, message, "👎", {first: -1.0})


def test_a_later_reaction_counts_instead(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    asked, answer = question()
    channel.write(ANN, asked)
    message = channel.until_said(answer)
    react(agent, channel, message, "👍", {answer: 1.0})
    react(agent, channel, message, "👎🏽", {answer: -1.0})


def test_a_button_rates_changes_and_takes_back(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    (asked, first), (asked_then, second) = question(), question()
    channel.write(ANN, asked)
    message = channel.until_said(first)
    channel.write(ANN, asked_then)
    channel.until_said(second)
    until(lambda: [each["text"] for each in channel.buttons(message)] == ["👍", "👎"])
    for label, expected in (("👍", {first: 1.0}), ("👎", {first: -1.0}), ("👎", {}), ("👍", {first: 1.0})):
        channel.press(ANN, message, label)
        until(lambda expected=expected: ratings(agent) == expected)
        ticked = [f"{each} ✓" if each == label and expected else each for each in ("👍", "👎")]
        until(lambda ticked=ticked: [each["text"] for each in channel.buttons(message)] == ticked)


def test_only_whom_it_answers_may_press(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    asked, answer = question()
    channel.write(ANN, asked, FRIENDS)
    message = channel.until_said(answer)
    until(lambda: len(channel.buttons(message)) == 2)
    channel.press(BOB, message, "👎", FRIENDS)
    channel.until_said("burnish: only the person whom this message answers can rate it")
    channel.press(ANN, message, "👍", FRIENDS)
    until(lambda: ratings(agent) == {answer: 1.0})


def test_only_whom_it_answers_may_rate_it(agent: Agent, channel: Telegram) -> None:
    """Of two friends in a group, the one who did not ask changes nothing, and neither does a smile."""
    agent.begin()
    asked, answer = question()
    channel.write(ANN, asked, FRIENDS)
    message = channel.until_said(answer)
    time.sleep(within(LOOKED_S))
    channel.react(BOB, message, "👎", FRIENDS)
    channel.react(ANN, message, "😁", FRIENDS)
    time.sleep(within(LOOKED_S))
    assert ratings(agent) == {}
    react(agent, channel, message, "👍", {answer: 1.0}, chat=FRIENDS)


def test_rl_typed_into_the_channel(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    asked, answer = question()
    channel.write(BOB, asked)
    channel.until_said(answer)
    channel.write(BOB, "/rl bad too short")
    channel.until_said("rated bad with your comment")
    assert ratings(agent) == {answer: -1.0}
    asked, answer = question()
    channel.write(BOB, asked)
    channel.until_said(answer)
    told = [text for each in agent.model.asked for text in each.said if OPENCLAW_CONTEXT not in text]
    assert not any("/rl bad" in text for text in told)  # OpenClaw itself may quote what was written lately


def test_a_session(agent: Agent, channel: Telegram) -> None:
    """Turns, a compaction and a new session: each rating reaches the answer before it, or the one named."""
    agent.begin()
    expected = {}
    for command, rating in (("bad", -1.0), ("good", 1.0), ("4", 0.5)):
        answer = ask(channel)
        rate(channel, f"/rl {command}")
        expected[answer] = rating
    answer = ask(channel)
    channel.write(ANN, "/compact")
    channel.until_said("ompact")
    agent.burnish_says("good")
    expected[answer] = 1.0
    assert ratings(agent) == expected
    channel.write(ANN, "/new")
    answer = ask(channel)
    rate(channel, "/rl bad at last")
    assert ratings(agent) == {**expected, answer: -1.0}


def test_disconnect_takes_the_plugin_away(agent: Agent) -> None:
    agent.burnish_says("disconnect", "openclaw")
    assert not (agent.home / ".openclaw" / "burnish").exists()


def ask(channel: Telegram) -> str:
    """Ask something new; return the answer."""
    asked, answer = question()
    channel.write(ANN, asked)
    channel.until_said(answer)
    return answer


def react(
    agent: Agent,
    channel: Telegram,
    message: int,
    emoji: str,
    expected: dict[str, float],
    *,
    chat: int | None = None,
) -> None:
    """Ann reacts, and these ratings are there.

    OpenClaw takes a message for its own a moment after it was sent only, and passes over a reaction that comes before:
    where that was so, she reacts once more.
    """
    again = 0.0

    def given() -> bool:
        nonlocal again
        if ratings(agent) == expected:
            return True
        if time.monotonic() > again:
            channel.react(ANN, message, emoji, chat)
            again = time.monotonic() + within(LOOKED_S)
        return False

    until(given)


def rate(channel: Telegram, command: str) -> None:
    """Type a command, and wait for what burnish says to it."""
    said = len(channel.saying("burnish: rated"))
    channel.write(ANN, command)
    until(lambda: len(channel.saying("burnish: rated")) > said)


def ratings(agent: Agent) -> dict[str, float]:
    """What was rated since then: ratings by the text of the answer."""
    texts = {each["id"]: said(each) for each in agent.logged()}
    return {texts[answer]: rating for answer, rating in agent.given().items()}
