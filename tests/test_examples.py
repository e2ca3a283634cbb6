"""Every file in ``examples/`` runs, and does what it says."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.config.config import load_config
from examples.coding_agent import TOYS, Toy, passes, written
from tests.support.burnish import running
from tests.support.execute import execute
from tests.support.inprocess import behind
from tests.support.tiny_gguf import random_llama
from tests.support.upstream import completion, reply

EXAMPLES = Path(__file__).parents[1] / "examples"
MENDED = {
    "leap": "def is_leap(year): return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
    "clamp": "def clamp(number, low, high): return max(low, min(high, number))",
    "words": "def words(text): return text.split()",
}
"""The toy repositories of the coding agent, as they should be."""
SETTINGS = {"BURNISH_TRAIN__SCHEDULE": "manual", "BURNISH_TRAIN__EPOCHS": "1"}
LONGER = {"measured.py": 100} | dict.fromkeys(
    ("coding_agent.py", "blackjack.py", "text_world.py", "quest.py", "learning_agents.py"), 250
)
"""Lines of examples that bring an environment along."""
# Training a tiny model takes seconds; importing torch twice on two busy cores takes longer.
RUN_LIMIT_S = 240


def run(example: str, url: str) -> str:
    program = "node" if example.endswith(".mjs") else sys.executable
    env = {"BURNISH_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-mine"}
    done = execute(program, EXAMPLES / example, env=env, limit_s=RUN_LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def tiny_burnish(folder: Path, *flags: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run burnish with a tiny model, which answers with random words; gives its URL."""
    pytest.importorskip("torch")
    model = random_llama(folder / "tiny.gguf")
    with running(folder / "data", "--model", str(model), *flags, env=env) as burnish:
        yield burnish.url


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tiny_burnish(tmp_path_factory.mktemp("tiny"), env=SETTINGS) as url:
        yield url


@pytest.fixture(scope="module")
def learning_off(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tiny_burnish(tmp_path_factory.mktemp("tiny-off"), "--no-train") as url:
        yield url


def use_case(name: str, url: str) -> subprocess.CompletedProcess[str]:
    program = (sys.executable, EXAMPLES / "use_cases" / f"{name}.py", "--small")
    return execute(*program, env={"BURNISH_URL": f"{url}/v1"}, limit_s=4 * RUN_LIMIT_S)


def latest(url: str, path: str, limit: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{url}{path}", params={"limit": limit}).json()["data"]
    return found


@pytest.mark.parametrize("example", ["chat.py", "stream.py"])
def test_a_chat_is_answered_and_logged(example: str, url: str) -> None:
    printed = run(example, url)
    logged = latest(url, "/burnish/completions")[0]
    assert printed.strip() == logged["reply"]["content"].strip() != ""


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ("rate_by_id.py", [{"reward": 1.0}]),
        ("rate_in_chat.py", [{"reward": -1.0, "comment": "too long", "target": "rl"}]),
        (
            "comment_and_correction.py",
            [
                {"correction": "Paris is the capital of France.", "reward": None},
                {"reward": -1.0, "comment": "Answer in one short sentence."},
            ],
        ),
        ("node/chat.mjs", [{"reward": 0.5, "scale": "likert"}]),
    ],
)
def test_a_rating_arrives(example: str, expected: list[dict[str, Any]], url: str) -> None:
    if example.endswith(".mjs") and not shutil.which("node"):
        pytest.skip("node isn't installed")
    run(example, url)
    rated = latest(url, "/burnish/completions")[0]["id"]
    for record, fields in zip(latest(url, "/v1/feedback", len(expected)), expected, strict=True):
        assert record | fields | {"completion_id": rated} == record


def test_sixteen_comments(url: str) -> None:
    printed = run("sixteen_comments.py", url)
    assert printed.splitlines()[-1].startswith("16 bad ")
    comments = [each["comment"] for each in latest(url, "/v1/feedback", 16)]
    assert set(comments) == {"too long", "one short sentence, please", "just the answer in a few words"}


def test_another_agent_is_understood(url: str) -> None:
    run("another_agent.py", url)
    assert latest(url, "/burnish/completions")[0]["surface"] == "messages"


@pytest.mark.slow
@pytest.mark.timeout(2 * RUN_LIMIT_S)
def test_training_makes_a_version_that_is_swapped_under_a_stream(url: str) -> None:
    assert run("train_and_wait.py", url).split(":")[0] in ("live", "candidate", "rejected")
    printed = run("hot_reload.py", url)
    assert "[v1 is live]" in printed
    assert "[rolled back]" in printed
    events = httpx.get(f"{url}/burnish/adapters/1").json()["events"]
    assert events[-1]["state"] == "live"
    assert httpx.get(f"{url}/burnish/status").json()["live"]["version"] == 0
    assert latest(url, "/burnish/completions")[0]["outcome"] == "complete"


USE_CASES: dict[str, dict[str, Any]] = {
    "report_tone": {"correction": "The login page is finished and was tested on Monday."},
    "code_style": {},  # nothing that a model of random words writes compiles
    "support_voice": {"scale": "likert", "rater": "colleague"},
    "tutor": {"source": "implicit", "tags": ["time", "follow-up"]},
    "three_pairs": {"correction": "A computer is a machine that follows a list of steps, very fast."},
}
"""Name → what its first feedback says."""


@pytest.mark.parametrize("name", USE_CASES)
def test_a_use_case_fails_with_learning_off(name: str, learning_off: str) -> None:
    before = httpx.get(f"{learning_off}/burnish/status").json()["counts"]["feedback"]
    done = use_case(name, learning_off)
    assert done.returncode == 1, done.stderr
    assert "nothing is learnt: " in done.stdout
    assert done.stderr.startswith("It hasn't learnt: 30% fewer misses were expected, not 0%")
    stored = httpx.get(f"{learning_off}/burnish/status").json()["counts"]["feedback"] - before
    assert (stored > 0) is bool(USE_CASES[name])
    if stored:
        first = latest(learning_off, "/v1/feedback", stored)[-1]
        assert first | USE_CASES[name] == first


@pytest.mark.soak
@pytest.mark.timeout(4 * RUN_LIMIT_S)
@pytest.mark.parametrize("name", USE_CASES)
def test_a_use_case_learns_from_the_small_model(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with running(tmp_path / "data", env={"BURNISH_TRAIN__SCHEDULE": "manual"}) as burnish:
        done = use_case(name, burnish.url)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["before_vllm", "before_ollama", "before_a_cloud"])
async def test_burnish_before_another_server(name: str, tmp_path: Path) -> None:
    config = load_config(file=EXAMPLES / f"{name}.toml")
    told = {"model": config.model, "instructions": config.instructions}
    async with behind(tmp_path, reply(completion("Tea is a drink.")), **told) as (client, server):
        printed = await asyncio.to_thread(run, "chat.py", str(client.base_url).rstrip("/"))
    sent = server.requests[-1]
    assert printed == "Tea is a drink.\n"
    assert sent.json()["model"] == config.model
    assert sent.header("authorization") == "Bearer sk-mine"


def test_the_list_names_every_example_and_each_is_short() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for example in (each for each in EXAMPLES.rglob("*.*") if each.suffix in (".py", ".mjs", ".toml")):
        assert f"({example.relative_to(EXAMPLES)})" in listed
        most = LONGER.get(example.name, 45)
        assert len(example.read_text(encoding="utf-8").splitlines()) <= most


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
def test_no_toy_repository_passes_before_it_is_mended_nor_by_a_trick(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / f"test_{toy.name}.py").write_text(written(toy))
    tricks = ("import os; os._exit(0)", "import sys; sys.stdout.write('OK'); raise SystemExit(0)", "")
    for code in (toy.code, *tricks):
        (tmp_path / f"{toy.name}.py").write_text(code)
        assert not passes(tmp_path, toy), code
    (tmp_path / f"{toy.name}.py").write_text(MENDED[toy.name])
    assert passes(tmp_path, toy)
