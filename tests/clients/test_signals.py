"""Real agents run real tests: burnish reads from what their tools say whether the tests pass, and if one is missing."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agent import Agent, until
from tests.clients.test_agents import HEADLESS
from tests.support.burnish import running
from tests.support.scripted_model import Asked, scripted_model
from tests.support.wires import Says

ORDER = "Make the tests pass"
TESTS = f"{sys.executable} -m pytest -q 2>&1 | tail -5"
APP = "def run():\n    return 1\n"
MENDED = APP.replace("1", "2")
FILES = {
    "app.py": APP,
    "test_app.py": "from app import run\n\n\ndef test_run():\n    assert run() == 2\n",
    "test_more.py": "def test_more():\n    pass\n",
}
PATCH = (
    "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: app.py\n@@\n def run():\n-    return 1\n"
    "+    return 2\n*** End Patch\nEOF"
)
SHELLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "claude-code": ("Bash", "command", {"description": "x"}),
    "codex": ("exec_command", "cmd", {"yield_time_ms": 250}),
    "opencode": ("bash", "command", {"description": "x"}),
    "cline": ("run_commands", "commands", {}),
}
RUNNING = re.compile("Process running with session ID ([0-9]+)")
"""Codex says so of a command that takes longer than it was told to wait."""
TOOLS = {"claude-code": ("claude", "-p", "--allowedTools=Bash,Write", "--")}
"""What must be allowed."""


def ran(name: str, command: str) -> Says:
    tool, argument, more = SHELLS[name]
    return Says(tool=tool, arguments={argument: [command] if tool == "run_commands" else command, **more})


def mended(name: str, tmp_path: Path) -> Says:
    path = tmp_path / "home" / "work" / "app.py"
    if name == "codex":
        return ran(name, PATCH)
    if name == "cline":
        return Says(
            tool="editor", arguments={"path": str(path), "old_text": "return 1", "new_text": "return 2"}
        )
    tool, argument = ("Write", "file_path") if name == "claude-code" else ("write", "filePath")
    return Says(tool=tool, arguments={argument: str(path), "content": MENDED})


@contextmanager
def at_work(name: str, tmp_path: Path, *steps: Says) -> Iterator[Agent]:
    """Have an agent take steps in a folder with tests, one of which fails; gives it when it is done."""
    headless, left = HEADLESS[name], list(steps)
    files = headless.settings | {f"work/{file}": text for file, text in FILES.items()}
    signals = {"BURNISH_SIGNALS__ENABLED": "true"}

    def decide(asked: Asked) -> Says:
        if runs := RUNNING.search(asked.results[-1] if asked.results else ""):
            return Says(tool="write_stdin", arguments={"session_id": int(runs[1]), "yield_time_ms": 30_000})
        if ORDER not in str(asked.body) or SHELLS[name][0] not in asked.tools:
            return Says("A title")
        return left.pop(0) if left else Says("Done.")

    with (
        scripted_model(decide) as model,
        running(tmp_path / "data", "--no-train", "--upstream", model.url, env=signals) as burnish,
    ):
        agent = Agent(burnish, model, tmp_path / "home")
        for file, text in files.items():
            agent.write(file, text)
        agent.burnish_says("connect", name)
        agent.run(*(TOOLS.get(name) or headless.with_tools or headless.ask), f"{ORDER}.")
        assert not left
        yield agent
        agent.end()


@pytest.mark.parametrize("name", SHELLS)
def test_what_its_tests_say(name: str, tmp_path: Path) -> None:
    steps = (ran(name, TESTS), mended(name, tmp_path), ran(name, TESTS))
    with at_work(name, tmp_path, *steps) as agent:
        (found,) = until(lambda: agent._get("/burnish/status")["signals"]["latest"])
        assert (found["good"], found["words"]) == (True, "2 tests passed, 0 failed (pytest)")
        (rating,) = agent._get("/v1/feedback")["data"]
        assert (rating["source"], rating["reward"], rating["scope"]) == ("environment", 1.0, "turn")


def test_a_test_that_it_deletes(tmp_path: Path) -> None:
    name = "claude-code"
    steps = (mended(name, tmp_path), ran(name, "rm test_more.py"), ran(name, TESTS))
    with at_work(name, tmp_path, *steps) as agent:
        (found,) = until(lambda: agent._get("/burnish/status")["signals"]["latest"])
        assert (found["good"], found["words"]) == (None, "a test file was deleted")
        assert agent._get("/v1/feedback")["data"] == []
