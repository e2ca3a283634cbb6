"""Real coding agents on a toy repository: its tests reward them, and a deleted test gains nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
import pytest

from tests.clients.agent import CLIENTS, QUIET, ROOT
from tests.support.burnish import Burnish, running
from tests.support.execute import execute
from tests.support.patience import within
from tests.support.scripted_model import Asked, scripted_model
from tests.support.wires import Says
from tests.test_examples import MENDED

pytestmark = pytest.mark.clients

SHELLS = {"claude-code": ("Bash", "command"), "codex": ("exec_command", "cmd")}


def played(burnish: Burnish, agent: str, home: Path) -> str:
    path = os.pathsep.join((str(CLIENTS / "node_modules" / ".bin"), os.environ["PATH"]))
    command = (sys.executable, "-m", "examples.coding_agent", "--agent", agent, "--attempts", "1")
    env = {**QUIET, "PATH": path, "HOME": str(home), "IS_SANDBOX": "1"}
    ended = execute(*command, "--url", burnish.url, cwd=ROOT, env=env, limit_s=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def ran(agent: str, command: str) -> Says:
    tool, argument = SHELLS[agent]
    return Says(tool=tool, arguments={argument: command, **({"description": "x"} if tool == "Bash" else {})})


def by_hand(name: str, code: str) -> str:
    """A command that mends the repository in which it is run; of one it deletes the tests instead."""
    mend = f"rm test_{name}.py" if name == "words" else f"printf '%s\\n' '{code}' > {name}.py"
    return f"[ ! -f {name}.py ] || {mend}"


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_tests_reward_an_agent_that_mends_the_code_and_none_that_deletes_them(
    agent: str, tmp_path: Path
) -> None:
    mends = " ; ".join(by_hand(*each) for each in MENDED.items())

    def decide(asked: Asked) -> Says:
        return Says("Done.") if asked.results or not asked.tools else ran(agent, mends)

    given = ("--model", "scripted", "--no-train")
    with (
        scripted_model(decide) as model,
        running(
            tmp_path / "data", "--upstream", model.url, *given, env={"BURNISH_ENGINE": "none"}
        ) as burnish,
    ):
        told = played(burnish, agent, tmp_path)
        rollouts = httpx.get(f"{burnish.url}/v1/rollouts?task=coding", timeout=within(10)).json()["data"]
    assert "2 of 3 attempts passed" in told, told
    assert {each["group"]: each["reward"] for each in rollouts} == {"leap": 1.0, "clamp": 1.0, "words": 0.0}
    assert all(each["steps"] for each in rollouts), "the agent carried its rollout"
