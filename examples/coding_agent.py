"""A coding agent learns from tests: Claude Code or Codex mends a toy repository, and its tests are the reward.

``python -m examples.coding_agent [--agent codex] [--attempts 4] [--train]`` needs a running burnish (``burnish up``)
and the agent on PATH. Each attempt is a rollout: a fresh copy of the repository, the agent unchanged but for a base URL
and a key, then our own copy of the tests. The agent's copy counts for nothing, so to delete or weaken a test gains
nothing.

With a model that now and then succeeds (one of some billions of parameters, on a GPU), ``--train`` learns from the
attempts. A model that never succeeds gets the same reward each time, and that teaches nothing: burnish says so.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

TASK = "coding"
PROMPT = (
    "The tests of this repository fail. Mend the code, not the tests, until they pass: python -m unittest -q"
)
LIMIT_S = 600
"""Of one attempt."""
TESTS_LIMIT_S = 60


class Toy(NamedTuple):
    """A repository of two files."""

    name: str
    code: str
    tests: Sequence[str]
    """Lines."""


TOYS = (
    Toy(
        "leap",
        "def is_leap(year):\n    return year % 4 == 0\n",
        (
            "self.assertTrue(is_leap(2024))",
            "self.assertFalse(is_leap(1900))",
            "self.assertTrue(is_leap(2000))",
        ),
    ),
    Toy(
        "clamp",
        "def clamp(number, low, high):\n    return max(high, min(low, number))\n",
        (
            "self.assertEqual(clamp(5, 1, 3), 3)",
            "self.assertEqual(clamp(0, 1, 3), 1)",
            "self.assertEqual(clamp(2, 1, 3), 2)",
        ),
    ),
    Toy(
        "words",
        "def words(text):\n    return text.split(' ')\n",
        ("self.assertEqual(words('a  b'), ['a', 'b'])", "self.assertEqual(words(' a\\n'), ['a'])"),
    ),
)
Command = Callable[[dict[str, Any]], tuple[Sequence[str], dict[str, str]]]
"""Takes a rollout; returns a command line and what is set in its environment."""


def claude_code(rollout: dict[str, Any]) -> tuple[Sequence[str], dict[str, str]]:
    url = rollout["base_url"].removesuffix("/v1")  # it adds that itself
    told = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": rollout["api_key"]}
    return ("claude", "-p", "--allowedTools=Bash,Read,Edit,Write", "--model", "default", "--", PROMPT), told


def codex(rollout: dict[str, Any]) -> tuple[Sequence[str], dict[str, str]]:
    provider = f'{{name="burnish", base_url="{rollout["base_url"]}", wire_api="responses", env_key="OPENAI_API_KEY"}}'
    given = ("-c", f"model_providers.burnish={provider}", "-c", "model_provider=burnish", "-m", "default")
    sandbox = ("--skip-git-repo-check", "--sandbox", "workspace-write")
    return ("codex", "exec", *sandbox, *given, PROMPT), {"OPENAI_API_KEY": rollout["api_key"]}


AGENTS: dict[str, Command] = {"claude-code": claude_code, "codex": codex}


def written(toy: Toy) -> str:
    """Return the tests of a repository."""
    name = toy.code.partition("(")[0].removeprefix("def ")
    head = f"import unittest\n\nfrom {toy.name} import {name}\n\n\nclass Test(unittest.TestCase):\n"
    return f"{head}    def test(self):\n" + "".join(f"        {line}\n" for line in toy.tests)


def attempt(http: httpx.Client, agent: str, toy: Toy, number: int) -> float:
    """Have the agent mend a fresh copy; returns its reward, 1 if our tests pass and else 0."""
    said = {"task": TASK, "group": toy.name, "seed": number, "tags": {"agent": agent}, "version": "candidate"}
    rollout = _answered(http.post("/v1/rollouts", json=said))
    with tempfile.TemporaryDirectory(prefix="burnish-toy-") as folder:
        place = Path(folder)
        (place / f"{toy.name}.py").write_text(toy.code)
        (place / f"test_{toy.name}.py").write_text(written(toy))
        command, told = AGENTS[agent](rollout)
        reason = _run(command, place, os.environ | told)
        (place / f"test_{toy.name}.py").write_text(written(toy))
        passed = passes(place, toy)
    words = f"{'tests passed' if passed else 'tests failed'}{reason}"
    _answered(
        http.post(f"/v1/rollouts/{rollout['id']}/reward", json={"value": float(passed), "reason": words})
    )
    ended = _answered(http.post(f"/v1/rollouts/{rollout['id']}/end", json={}))
    print(f"{toy.name} {number}: {words}, {len(ended['steps'])} steps, {rollout['id']}", flush=True)
    return float(passed)


def _run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> str:
    """Run the agent to its end; returns what was wrong, "" if nothing was."""
    try:
        ended = subprocess.run(
            command,
            check=False,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f" (the agent was stopped after {LIMIT_S} s)"
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not on PATH: install the agent, or choose another with --agent")
    return f" (the agent ended with {ended.returncode})" if ended.returncode else ""


def passes(folder: Path, toy: Toy) -> bool:
    """Whether our copy of the tests passes, to its end: code that prints or exits by itself can't know the word."""
    word = secrets.token_hex()
    command = (sys.executable, "-I", "-c", RUN, word, str(folder), f"test_{toy.name}")
    try:
        ended = subprocess.run(command, check=False, cwd="/", capture_output=True, timeout=TESTS_LIMIT_S)
    except subprocess.TimeoutExpired:
        return False
    return ended.stdout.decode(errors="replace").endswith(word)


RUN = """
import sys, unittest
name, folder, word = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
sys.path.append(folder)
result = unittest.TextTestRunner(stream=sys.stderr).run(unittest.defaultTestLoader.loadTestsFromName(name))
if result.wasSuccessful() and result.testsRun == 1 and not result.skipped:
    sys.stdout.write(word)
"""


def _answered(answer: httpx.Response) -> dict[str, Any]:
    if answer.is_error:
        sys.exit(f"burnish refused: {answer.json()['error']['message']}")
    return dict(answer.json())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agent", choices=AGENTS, default="claude-code")
    parser.add_argument("--attempts", type=int, default=4, help="at each of the three repositories")
    parser.add_argument("--train", action="store_true", help="learn from them afterwards")
    parser.add_argument("--url", default=os.environ.get("BURNISH_URL", "http://127.0.0.1:8787"))
    given = parser.parse_args()
    with httpx.Client(base_url=given.url, timeout=60) as http:
        try:
            http.get("/healthz")
        except httpx.TransportError:
            sys.exit(f"burnish isn't running at {given.url}: start it with  burnish up")
        rewards = [attempt(http, given.agent, toy, n) for toy in TOYS for n in range(given.attempts)]
        print(f"\n{sum(rewards):.0f} of {len(rewards)} attempts passed")
        if given.train:
            started = _answered(http.post("/burnish/train", json={"rollouts": TASK}))
            print(f"learning from them: {started['run_id']}; to watch it: burnish watch")


if __name__ == "__main__":
    main()
