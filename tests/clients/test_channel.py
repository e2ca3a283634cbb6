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
    first, message = ask(channel)
    ask(channel)
    react(agent, channel, message, "👎", {first: -1.0})


def test_a_later_reaction_counts_instead(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    answer, message = ask(channel)
    react(agent, channel, message, "👍", {answer: 1.0})
    react(agent, channel, message, "👎🏽", {answer: -1.0})


def test_a_button_rates_changes_and_takes_back(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    first, message = ask(channel)
    ask(channel)
    until(lambda: [each["text"] for each in channel.buttons(message)] == ["👍", "👎"])

    def press(label: str, expected: dict[str, float]) -> None:
        channel.press(ANN, message, label)
        until(lambda: agent.ratings() == expected)
        ticked = [f"{each} ✓" if each == label and expected else each for each in ("👍", "👎")]
        until(lambda: [each["text"] for each in channel.buttons(message)] == ticked)

    press("👍", {first: 1.0})
    press("👎", {first: -1.0})
    press("👎", {})
    press("👍", {first: 1.0})


def test_only_whom_it_answers_may_press(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    answer, message = ask(channel, chat=FRIENDS)
    until(lambda: len(channel.buttons(message)) == 2)
    channel.press(BOB, message, "👎", FRIENDS)
    channel.until_said("burnish: only the person whom this message answers can rate it")
    channel.press(ANN, message, "👍", FRIENDS)
    until(lambda: agent.ratings() == {answer: 1.0})


def test_only_whom_it_answers_may_rate_it(agent: Agent, channel: Telegram) -> None:
    """Of two friends in a group, the one who did not ask changes nothing, and neither does a smile."""
    agent.begin()
    answer, message = ask(channel, chat=FRIENDS)
    time.sleep(within(LOOKED_S))
    channel.react(BOB, message, "👎", FRIENDS)
    channel.react(ANN, message, "😁", FRIENDS)
    time.sleep(within(LOOKED_S))
    assert agent.ratings() == {}
    react(agent, channel, message, "👍", {answer: 1.0}, chat=FRIENDS)


def test_rl_typed_into_the_channel(agent: Agent, channel: Telegram) -> None:
    agent.begin()
    answer, _ = ask(channel, BOB)
    channel.write(BOB, "/rl bad too short")
    channel.until_said("rated bad with your comment")
    assert agent.ratings() == {answer: -1.0}
    ask(channel, BOB)
    told = [text for each in agent.model.asked for text in each.said if OPENCLAW_CONTEXT not in text]
    assert not any("/rl bad" in text for text in told)  # OpenClaw itself may quote what was written lately


def test_a_session(agent: Agent, channel: Telegram) -> None:
    """Turns, a compaction and a new session: each rating reaches the answer before it, or the one named."""
    agent.begin()
    expected = {}
    for command, rating in (("bad", -1.0), ("good", 1.0), ("4", 0.5)):
        answer, _ = ask(channel)
        rate(channel, f"/rl {command}")
        expected[answer] = rating
    answer, _ = ask(channel)
    channel.write(ANN, "/compact")
    channel.until_said("ompact")
    agent.burnish_says("good")
    expected[answer] = 1.0
    assert agent.ratings() == expected
    channel.write(ANN, "/new")
    answer, _ = ask(channel)
    rate(channel, "/rl bad at last")
    assert agent.ratings() == {**expected, answer: -1.0}


def test_disconnect_takes_the_plugin_away(agent: Agent) -> None:
    agent.burnish_says("disconnect", "openclaw")
    assert not (agent.home / ".openclaw" / "burnish").exists()


def ask(channel: Telegram, person: int = ANN, chat: int | None = None) -> tuple[str, int]:
    """Ask something new; return the answer, and the message that it is in."""
    asked, answer = question()
    channel.write(person, asked, chat)
    return answer, channel.until_said(answer)


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
        if agent.ratings() == expected:
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
