"""README's blocks, pasted as they stand, against a running burnish; and its claims against what was measured."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.burnish import Burnish, running
from tests.support.execute import execute
from tests.support.patience import within

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8787"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALLS = ("scripts/up", "source .venv/bin/activate")
"""Lines that install burnish or find it, which it already is."""


def blocks(page: str, kind: str) -> list[str]:
    return [code for found, code in BLOCK.findall(page) if found == kind]


@pytest.fixture(scope="module")
def burnish(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    with running(tmp_path_factory.mktemp("readme") / "data", env={"BURNISH_TRAIN__SCHEDULE": "manual"}) as up:
        yield up


def get(burnish: Burnish, path: str) -> Any:
    return httpx.get(burnish.url + path, timeout=within(10)).json()


def pasted(burnish: Burnish, home: Path, program: list[str], code: str) -> str:
    """Run a block as someone who pastes it; return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(home), "BURNISH_URL": burnish.url, "NO_COLOR": "1", "COLUMNS": "200"}
    done = execute(*program, "-c", code.replace(ADDRESS, burnish.url), cwd=home, env=env, limit_s=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(burnish: Burnish, home: Path, code: str) -> str:
    kept = [line for line in code.splitlines() if not line.startswith(INSTALLS)]
    return pasted(burnish, home, ["bash", "-e"], "\n".join(kept))


def test_every_block_of_readme_is_run() -> None:
    found = [kind for kind, _ in BLOCK.findall(PAGE)]
    assert found == ["sh", "python", "sh", "sh"]
    first = [line.split()[0] for line in blocks(PAGE, "sh")[0].splitlines()]
    assert first == [INSTALLS[0], "scripts/test"], "what runs it, and what tests it, on the first screen"
    assert PAGE[: PAGE.index("scripts/test")].count("\n") < 25


def test_the_blocks_of_the_start_print_an_answer_and_rate_it_and_leave_nothing(
    burnish: Burnish, tmp_path: Path
) -> None:
    printed = pasted(burnish, tmp_path, [sys.executable], blocks(PAGE, "python")[0])
    logged = get(burnish, "/burnish/completions")["data"]
    assert [each["reply"]["content"].strip() for each in logged] == [printed.strip()]
    assert printed.strip()

    printed = shell(burnish, tmp_path, blocks(PAGE, "sh")[1])
    assert "rated bad with your comment" in printed
    assert "too long" in printed, "in the history"
    assert "1 commented" in printed, "in the status"
    assert "taken back: bad" in printed
    (answer,) = get(burnish, "/burnish/completions")["data"]
    assert answer["rating"] is None
    assert get(burnish, "/burnish/status")["live"]["version"] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == []


def test_the_block_about_your_own_model_changes_nothing(burnish: Burnish, tmp_path: Path) -> None:
    printed = shell(burnish, tmp_path, blocks(PAGE, "sh")[2])
    assert "qwen3-0.6b" in printed
    assert "claude-code" in printed
    assert f"ok at {burnish.url}" in printed
    assert not (tmp_path / ".claude").exists()


def measured(user: str, arm: str, ratings: int, column: str) -> str:
    """Return a figure of the measurements as prose has it: ".66"."""
    lines = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8").splitlines()
    columns = next(line for line in lines if line.startswith("| user |")).split(" | ")
    row = next(line for line in lines if line.startswith(f"| {user} | {arm} | {ratings} |"))
    return row.split(" | ")[columns.index(column)].split()[0].removeprefix("0")


def test_the_answers_before_and_after_are_those_of_the_demo() -> None:
    asked, before, after = re.findall(r"^\| (Who .*) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)[0]
    assert f"| {asked} | ✗ {before} | ✓ {after} |" in (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")


def test_figures_that_prose_quotes_are_those_of_the_results() -> None:
    """Those of the demo are written by scripts/docs."""
    before, after = (
        measured("brief-cold", "–", 0, "at length"),
        measured("brief-cold", "auto_words", 16, "at length"),
    )
    assert f"{after} of those answers stayed long, of the base model's {before}" in " ".join(PAGE.split())
    advice = " ".join((ROOT / "docs" / "rating.md").read_text(encoding="utf-8").split())
    comments, thumbs = (
        measured("brief-cold", "auto_words", 16, "joint"),
        measured("brief-cold", "auto", 32, "joint"),
    )
    assert f"16 of them made {comments} of answers short and on topic" in advice
    assert f"32 thumbs {thumbs} " in advice
    before, after = measured("brief", "–", 0, "joint"), measured("brief", "auto", 32, "joint")
    assert f"{after} of answers short and on topic, from {before}" in advice
