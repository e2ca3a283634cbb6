"""A session of each agent, several turns long: every rating reaches the very answer that it was given to.

With a tool, and as much as each agent does without a terminal of this: a compaction, a fork, the last question put anew
(a regeneration) or otherwise (an edit). OpenClaw's is in test_channel.py, since it compacts in channels only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.clients import going_back
from tests.clients.agent import Agent, said
from tests.clients.script import question, words_anew
from tests.clients.test_agents import CODEX, HEADLESS

Command = tuple[str, ...]


@dataclass(frozen=True)
class Ways:
    """What an agent offers beside going on."""

    compacts: Callable[[Agent], Any] | None = None
    compacting: Command | None = None
    """The command line that asks after a compaction, where that is one step."""
    forks: Callable[[Agent], Command] | None = None
    """Returns the command line that asks in a copy of the session."""
    goes_back: Callable[[Agent], Command] | None = None
    """Returns the command line that asks in the stead of the last question."""


WAYS = {
    "claude-code": Ways(
        compacts=lambda agent: agent.run("claude", "-p", "--continue", "/compact"),
        forks=lambda agent: ("claude", "-p", "--continue", "--fork-session"),
        goes_back=going_back.claude_code,
    ),
    "codex": Ways(
        compacting=(*CODEX, "resume", "--last", "-c", "model_auto_compact_token_limit=1"),
        forks=lambda agent: (*CODEX, "fork", going_back.codex_thread(agent)),
        goes_back=going_back.codex,
    ),
    "opencode": Ways(
        compacts=going_back.opencode_compacts,
        forks=lambda agent: ("opencode", "run", "--continue", "--fork"),
        goes_back=going_back.opencode,
    ),
    "qwen-code": Ways(
        # Of so short a session it asks for a summary, finds that no shorter, and ends with 1.
        compacts=lambda agent: agent.run("sh", "-c", "qwen --continue /compress || true"),
        forks=lambda agent: ("qwen", "--continue", "--fork-session"),
    ),
    "continue": Ways(
        compacts=lambda agent: agent.run("cn", "-p", "--resume", "/compact"),
        forks=lambda agent: ("cn", "-p", "--fork", agent.newest(".continue/sessions/*-*.json").stem),
    ),
    "llm": Ways(),
}


class Session:
    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.expected: dict[str, float] = {}
        self.last = ""
        """The id of the last answer that was said to the person."""

    def ask(self, command: Command, *, of_tool: bool = False) -> str:
        asked, answer = question(of_tool)
        return self.asked(self.agent.run(*command, asked), answer)

    def ask_and_rate(self, command: Command, rating: float, *says: str, of_tool: bool = False) -> None:
        answer = self.ask(command, of_tool=of_tool)
        self.agent.burnish_says(*says)
        self.rated(answer, rating)
        self.holds()

    def asked(self, output: str, answer: str) -> str:
        """Take note of an answer that was printed; return its id."""
        assert answer in output
        (found,) = [each["id"] for each in self.agent.logged() if said(each) == answer]
        self.last = found
        return found

    def rated(self, answer: str, rating: float) -> None:
        """The next rating is to reach this answer."""
        self.expected[answer] = rating

    def holds(self) -> None:
        """Every rating is where it belongs, and nowhere else is any."""
        assert self.agent.given() == self.expected


@pytest.mark.timeout(900)  # opencode takes seconds to start, and a session is some twenty starts
@pytest.mark.parametrize("name", WAYS)
def test_a_session(name: str, agent: Agent) -> None:
    agent.burnish_says("connect", name)
    session, headless, ways = Session(agent), HEADLESS[name], WAYS[name]
    # From another terminal.
    session.ask_and_rate(headless.with_tools or headless.ask, 1.0, "good", "looked it up", of_tool=True)
    again = headless.again
    assert again is not None
    turn_by_turn(session, again)
    if ways.compacts or ways.compacting:
        compacted(session, again, ways)
    if ways.goes_back:
        session.ask_and_rate(ways.goes_back(agent), 1.0, "good")  # an edit: in the last question's stead
        asked_anew(session, again, ways.goes_back)
    if ways.forks:
        # What is asked in a copy is rated there; what it was copied from stays as it was rated.
        session.ask_and_rate(ways.forks(agent), -1.0, "bad")


def turn_by_turn(session: Session, again: Command) -> None:
    """Turns rated where they are asked, by id when they are long over, and not at all."""
    second = session.ask(again)
    assert "rated bad" in session.agent.run(*again, "/rl bad too long")
    session.rated(second, -1.0)
    third = session.ask(again)
    fourth = session.ask(again)
    session.agent.burnish_says("bad", "--id", third)
    session.rated(third, -1.0)
    assert "rated 4 of 5" in session.agent.run(*again, "/rl 4")
    session.rated(fourth, 0.5)
    session.ask(again)
    session.holds()


def compacted(session: Session, again: Command, ways: Ways) -> None:
    """The summary is nobody's answer: what is rated after it is the answer before, or nothing."""
    if ways.compacts:
        before = session.last
        ways.compacts(session.agent)
        session.agent.burnish_says("good")
        session.rated(before, 1.0)
        if "rated bad" in session.agent.run(*again, "/rl bad"):
            session.rated(before, -1.0)
        session.holds()
    after = session.ask(ways.compacting or again)
    assert "rated good" in session.agent.run(*again, "/rl good")
    session.rated(after, 1.0)
    session.holds()


def asked_anew(session: Session, again: Command, goes_back: Callable[[Agent], Command]) -> None:
    """A regeneration: the same question in its own stead; both answers are rated, each for itself."""
    asked, answers = words_anew()
    first = session.asked(session.agent.run(*again, asked), answers[0])
    session.agent.burnish_says("bad")
    session.rated(first, -1.0)
    second = session.asked(session.agent.run(*goes_back(session.agent), asked), answers[1])
    session.agent.burnish_says("good")
    session.rated(second, 1.0)
    session.holds()
