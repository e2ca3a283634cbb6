"""The program as a person uses it: real processes, a real running burnish, the small model."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.burnish import Burnish, running

ASK = {"model": "default", "max_tokens": 6, "messages": [{"role": "user", "content": "What is tea?"}]}


@pytest.fixture(scope="module")
def burnish(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    with running(
        tmp_path_factory.mktemp("burnish") / "data", env={"BURNISH_TRAIN__SCHEDULE": "manual"}
    ) as up:
        yield up


def run(*arguments: str, url: str | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"} | ({"BURNISH_URL": url} if url else {})
    return subprocess.run(
        [sys.executable, "-m", "burnish", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        check=False,
    )


def said(*arguments: str, url: str) -> Any:
    done = run(*arguments, "--json", url=url)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask(burnish: Burnish) -> str:
    answer = httpx.post(burnish.url + "/v1/chat/completions", json=ASK, timeout=60)
    return answer.headers["x-burnish-completion-id"]


def test_rating_the_last_answer_and_taking_it_back(burnish: Burnish) -> None:
    completion = ask(burnish)
    assert said("good", url=burnish.url)["completion_id"] == completion
    worse = said("bad", "too long", url=burnish.url)
    assert (worse["completion_id"], worse["reward"], worse["comment"]) == (completion, -1.0, "too long")
    latest = said("history", "-n", "1", url=burnish.url)["data"][0]
    assert (latest["id"], latest["rating"]) == (completion, -1.0)
    assert said("undo", url=burnish.url)["id"] == worse["id"]
    likert = said("rate", completion, "4", url=burnish.url)
    assert (likert["reward"], likert["scale"]) == (0.5, "likert")


def test_the_same_for_people(burnish: Burnish) -> None:
    ask(burnish)
    assert "rated good" in run("good", url=burnish.url).stdout
    assert "good" in run("history", url=burnish.url).stdout
    status = run("status", url=burnish.url).stdout
    assert "smollm2" in status
    assert "the schedule is manual" in status or "teaches only damage" in status
    assert "bare model" in run("adapters", "list", url=burnish.url).stdout
    assert "would" in run("train", "--dry-run", url=burnish.url).stdout
    assert "proxy" in run("doctor", url=burnish.url).stdout


def test_rolling_back_to_the_base_is_always_possible(burnish: Burnish) -> None:
    assert said("adapters", "rollback", "base", url=burnish.url)["live"] == 0
    assert said("adapters", "show", "base", url=burnish.url)["version"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("rate", "cmpl_nothing", "good"), 1, "cmpl_nothing"),
        (("rate", "last", "6"), 2, "1"),
        (("rate", "last", "lovely"), 2, "lovely"),
        (("adapters", "show", "7"), 1, "7"),
        (("adapters", "promote", "seven"), 2, "seven"),
        (("undo", "fb_nothing"), 1, "fb_nothing"),
        (("nonsense",), 2, "nonsense"),
        (("history", "-n", "0"), 2, "limit"),
        (("demo", "--ratings", "500"), 2, "500"),
    ],
)
def test_what_is_wrong_is_said_with_an_exit_code(
    burnish: Burnish, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = run(*arguments, url=burnish.url)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [("status",), ("good",), ("train",), ("adapters", "list"), ("chat",)])
def test_without_burnish_the_exit_code_is_three(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, url="http://127.0.0.1:9")
    assert done.returncode == 3
    assert "burnish up" in done.stderr


def test_doctor_works_without_burnish(tmp_path: Path) -> None:
    done = run("doctor", "--json", url="http://127.0.0.1:9")
    found = {finding["what"]: finding["level"] for finding in json.loads(done.stdout)}
    assert found["python"] == found["engine"] == found["data"] == "ok"


def test_a_talk_with_ratings_from_a_file(burnish: Burnish) -> None:
    lines = ["Say one word.", "nonsense", "b too dull", "/undo", "And another.", "4", "/quit"]
    done = run("chat", url=burnish.url, stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    assert "not 'nonsense'" in done.stdout
    ratings = httpx.get(burnish.url + "/v1/feedback?limit=2").json()["data"]
    assert [(each["reward"], each["undone_at"] is None) for each in ratings] == [(0.5, True), (-1.0, False)]


def test_a_talk_on_a_terminal_streams_and_asks_for_a_rating(burnish: Burnish) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "burnish", "chat", "--url", burnish.url],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        seen = _until(ours, "you ›")
        os.write(ours, b"Hello\n")
        seen += _until(ours, "skips:")
        assert "model ›" in seen
        os.write(ours, b"g nice\n")
        assert "good" in _until(ours, "you ›")
        os.write(ours, b"\x04")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert httpx.get(burnish.url + "/v1/feedback?limit=1").json()["data"][0]["comment"] == "nice"


def _until(terminal: int, text: str) -> str:
    seen = b""
    deadline = time.monotonic() + 60
    while text.encode() not in seen:
        assert time.monotonic() < deadline, seen.decode(errors="replace")
        seen += os.read(terminal, 4096)
    return seen.decode(errors="replace")
