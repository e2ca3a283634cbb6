"""The code blocks of docs/agents-that-learn.md, run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.agents import GymAgent, Rules
from tests.agents.conftest import Wire
from tests.support.patience import within

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "agents-that-learn.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8787"


def test_the_unmodified_agent_has_ten_lines_and_is_rewarded(wire: Wire) -> None:
    wire.says("4")
    code = BLOCKS[0]
    assert len([line for line in code.splitlines() if line and "import" not in line]) <= 10
    space: dict[str, Any] = {}
    exec(code.replace(ADDRESS, wire.url), space)
    (rollout,) = wire.rollouts("sums")
    assert (rollout["status"], rollout["reward"], rollout["group"]) == ("ended", 1.0, "2 + 2")
    space["burnish"].close()
    space["agent"].close()


def test_the_gym_agent_has_twenty_lines_and_plays(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wire.says("I stand.")
    monkeypatch.setenv("BURNISH_URL", wire.url)
    assert len([line for line in BLOCKS[1].splitlines() if line]) <= 20
    space: dict[str, Any] = {"__name__": "page"}
    exec(BLOCKS[1], space)
    assert capsys.readouterr().out.startswith("32 episodes, reward ")
    assert len(wire.rollouts("blackjack")) == 32
    space["agent"].close()


def test_the_whole_loop_calls_what_there_is() -> None:
    called = set(re.findall(r"agent\.(\w+)\(", "\n".join(BLOCKS[1:]) + PAGE))
    assert called >= {"warm_start", "play", "learn", "judge"}
    assert all(hasattr(GymAgent, name) for name in called)


def test_every_rule_is_in_the_table_with_its_default() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE.partition("| rule |")[2], re.MULTILINE))
    assert list(shown)[: len(Rules.__dataclass_fields__)] != []
    assert Rules.__dataclass_fields__.keys() <= shown.keys()
    assert shown["max_steps"].strip() == str(Rules().max_steps)
    assert shown["max_tokens"].strip() == str(Rules().max_tokens)
    assert shown["invalid_penalty"].strip() == "−1"
    assert Rules().invalid_penalty == -1


def as_curl_sends(command: str, address: str, rollout: str) -> httpx.Response:
    _, url, *options = shlex.split(command.replace(ADDRESS, address).replace("ro_…", rollout))
    given = list(zip(options[::2], options[1::2], strict=True))
    body = dict(given).get("-d")
    headers = {"content-type": "application/x-www-form-urlencoded"} if body is not None else {}
    headers |= {
        name.lower(): value
        for option, said in given
        if option == "-H"
        for name, _, value in [said.partition(": ")]
    }
    method = "POST" if body is not None or ("-X", "POST") in given else "GET"
    return httpx.request(method, url, headers=headers, content=body, timeout=within(10))


def test_each_curl_command_is_taken(wire: Wire) -> None:
    text = (DOCS / "agents-that-learn.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"^ *(curl .*)$", text, re.MULTILINE)
    assert len(commands) >= 3
    rollout = ""
    for command in commands:
        answer = as_curl_sends(command, wire.url, rollout)
        assert answer.is_success, (command, answer.text)
        rollout = rollout or answer.json()["id"]
