"""Real agents, told by ``burnish connect`` where to ask: they answer, run tools, are rated, and come away unharmed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from tests.clients.agent import Agent, said
from tests.clients.script import decide, question
from tests.support.burnish import Burnish, running
from tests.support.scripted_model import ScriptedModel, scripted_model


@dataclass(frozen=True)
class Headless:
    name: str
    ask: tuple[str, ...]
    """The command line, less what is asked."""
    again: tuple[str, ...] | None
    """The same within the conversation before."""
    with_tools: tuple[str, ...] | None = None
    """Where it needs to be told that it may run commands."""
    settings: dict[str, str] = field(default_factory=dict)
    """What somebody has set before: texts by file."""
    chat_only: bool = False
    """Whether the upstream speaks chat completions only, which the agent doesn't: burnish translates."""


LLM_TOOL = 'def tell() -> str:\n    """Tell the colour."""\n    return "sky-42"'
CODEX = ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
AGENTS = [
    Headless(
        "claude-code",
        ("claude", "-p"),
        ("claude", "-p", "--continue"),
        ("claude", "-p", "--allowedTools=Bash", "--"),
        {".claude/settings.json": json.dumps({"theme": "dark", "env": {"EDITOR": "vi"}}, indent=4)},
    ),
    Headless(
        "codex",
        CODEX,
        (*CODEX, "resume", "--last"),
        None,
        {".codex/config.toml": '# mine\nmodel = "gpt-5"  # the good one\n\n[tui]\nnotifications = false\n'},
    ),
    Headless(
        "opencode",
        ("opencode", "run"),
        ("opencode", "run", "--continue"),
        None,
        {".config/opencode/opencode.json": '{"autoupdate": false, "share": "disabled"}'},
    ),
    Headless(
        "qwen-code",
        ("qwen",),
        ("qwen", "--continue"),
        ("qwen", "--approval-mode=yolo"),
        # In the form in which it writes them itself.
        {".qwen/settings.json": '{\n  "ui": {\n    "theme": "GitHub"\n  },\n  "$version": 4\n}'},
    ),
    Headless("cline", ("cline",), None),
    Headless(
        "continue",
        ("cn", "-p"),
        ("cn", "-p", "--resume"),
        ("cn", "-p", "--auto"),
        {".continue/config.yaml": "name: Mine\nversion: 0.0.1\nschema: v1\nmodels: # none yet\n"},
    ),
    Headless(
        "openclaw",
        ("openclaw", "agent", "--local", "--session-id", "one", "--message"),
        ("openclaw", "agent", "--local", "--session-id", "one", "--message"),
        None,
        {".openclaw/openclaw.json": '{\n  "logging": {"level": "silent"}\n}\n'},
    ),
    Headless(
        "llm", ("llm", "-m", "burnish"), ("llm", "-c"), ("llm", "-m", "burnish", "--functions", LLM_TOOL)
    ),
]
HEADLESS = {each.name: each for each in AGENTS}
TRANSLATED = [replace(each, chat_only=True) for each in AGENTS if each.name in ("claude-code", "codex")]


@pytest.fixture(
    scope="module",
    params=[*AGENTS, *TRANSLATED],
    ids=lambda each: each.name + ("-translated" if each.chat_only else ""),
)
def headless(request: pytest.FixtureRequest) -> Headless:
    return request.param


@pytest.fixture(scope="module")
def chat_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Burnish, ScriptedModel]]:
    data = tmp_path_factory.mktemp("burnish") / "data"
    with (
        scripted_model(decide, formats=["/v1/chat/completions"]) as model,
        running(data, "--no-train", "--upstream", model.url) as up,
    ):
        yield up, model


@pytest.fixture(scope="module")
def connected(
    headless: Headless, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agent]:
    """An agent in a home folder with settings of somebody's, connected."""
    if headless.chat_only:
        burnish, model = request.getfixturevalue("chat_only")
    else:
        burnish, model = request.getfixturevalue("burnish"), request.getfixturevalue("model")
    agent = Agent(burnish, model, tmp_path_factory.mktemp(headless.name))
    for name, text in headless.settings.items():
        agent.write(name, text)
    assert burnish.url in agent.burnish_says("connect", headless.name)
    yield agent
    agent.end()


@pytest.fixture
def agent(connected: Agent) -> Agent:
    """The same, with nothing logged yet."""
    connected.begin()
    return connected


def test_answers(headless: Headless, agent: Agent) -> None:
    """It answers, streamed through burnish, and `burnish good` finds that very answer."""
    asked, answer = question()
    assert answer in agent.run(*headless.ask, asked)
    assert all(each.body["stream"] for each in agent.model.asked if asked in str(each.body))
    (turn,) = [each for each in agent.logged() if said(each) == answer]
    assert turn["outcome"] == "complete"
    agent.burnish_says("good")
    assert agent.rated()["id"] == turn["id"]


def test_tools(headless: Headless, agent: Agent) -> None:
    """It runs the tool that the model calls, and the answer after that is rated."""
    asked, answer = question(of_tool=True)
    assert answer in agent.run(*(headless.with_tools or headless.ask), asked)
    agent.burnish_says("bad", "too short")
    assert said(agent.rated()) == answer
    assert any((each["reply"] or {}).get("tool_calls") for each in agent.logged())


def test_rl(headless: Headless, agent: Agent) -> None:
    """What is typed into it rates the answer before, and the model is never told of it."""
    if headless.again is None:
        pytest.skip("it continues a conversation only in a terminal")
    asked, answer = question()
    agent.run(*headless.ask, asked)
    again = headless.again
    assert "rated good with your comment" in agent.run(*again, "/rl good nicely put")
    assert said(agent.rated()) == answer
    asked, answer = question()
    assert answer in agent.run(*again, asked)
    assert not any("/rl good" in str(each.body) for each in agent.model.asked)


def test_disconnect(headless: Headless, agent: Agent) -> None:
    """After all that, its settings are byte for byte what they were."""
    agent.burnish_says("disconnect", headless.name)
    assert {name: text.encode() for name, text in headless.settings.items()}.items() <= agent.files().items()
    assert not [
        name for name, text in agent.files().items() if agent.burnish.url.encode() in text and settings(name)
    ]


def settings(name: str) -> bool:
    return re.search(r"\.(json|toml|yaml|md)$", name) is not None
