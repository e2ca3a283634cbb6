"""What `burnish demo` checks before it spends minutes, what it says, and what it leaves behind when it is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo import report
from burnish.parts.desktop.demo.halves import HALVES, TOO_LONG, Half, Name
from burnish.parts.desktop.demo.outcome import HELD_OUT, SAMPLES, Exam, TrialOutcome, record, table
from burnish.parts.desktop.demo.questions import BRIEFLY, QUESTIONS
from burnish.parts.desktop.demo.user import AnsweredQuestion, User
from tests.support.inprocess import behind
from tests.support.patience import within
from tests.support.program import NOBODY, call, run
from tests.support.upstream import events, in_turn, reply, stream, upstream

LONG = "Snow is water that froze in the air. " * 5


@pytest.mark.parametrize("out", ["/proc/x", __file__])
def test_a_folder_that_cannot_be_written_is_refused_at_once(out: str) -> None:
    done = call("demo", "--out", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"can't write into the folder {out}" in done.stderr


async def test_an_upstream_that_cannot_be_trained_is_one_sentence(tmp_path: Path) -> None:
    async with upstream(reply(b"{}")) as other:
        demos = (
            asyncio.to_thread(run, "demo", "--upstream", url, "--out", str(tmp_path))
            for url in (NOBODY, other.url)
        )
        for done in await asyncio.gather(*demos):
            assert done.returncode == 1, done.stderr
            assert done.stderr.count("burnish can't learn here: versions cannot be swapped: ") == 1
            assert len(done.stderr.splitlines()) == 1


async def test_the_user_comments_on_what_is_long_and_praises_what_is_short(tmp_path: Path) -> None:
    half = replace(HALVES[Name.COMMENTS], count=2)
    answers = [
        stream(events(text, response_id=f"chatcmpl-{n}")) for n, text in enumerate(("Short.", LONG, LONG))
    ]
    async with behind(tmp_path, in_turn(*answers), model="mock") as (client, server):
        with User(str(client.base_url).rstrip("/"), half.system) as user:
            good = await asyncio.to_thread(lambda: list(user.teach(half, QUESTIONS, seed=0)))
        given = (await client.get("/v1/feedback")).json()["data"][::-1]
    assert good == [True, False, False], "it stops at the second comment"
    assert [each["reward"] for each in given] == [1.0, -1.0, -1.0]
    assert given[0]["comment"] is None
    assert {each["comment"] for each in given[1:]} <= set(TOO_LONG)
    assert [[each["role"] for each in one.json()["messages"]] for one in server.requests] == [["user"]] * 3


def test_the_page_names_its_command_and_what_the_program_asks_for(tmp_path: Path) -> None:
    page = report.markdown([outcome(half) for half in HALVES.values()], "burnish demo --out x")
    assert "Written by `burnish demo --out x`." in page
    comments, thumbs = page.split("\n## ")[1:]
    assert "no system message" in comments
    assert f'system message "{BRIEFLY}"' in thumbs
    for section in (comments, thumbs):
        assert "| short | 0% → 100% |" in section
        assert f"| facts known, of {len(FACTS)} | 40 → 38 |" in section
        assert "It doesn't mean right." in section
    report.draw([outcome(half) for half in HALVES.values()], tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_readme_has_a_row_for_each_half() -> None:
    rows = table([record(outcome(half, seed)) for half in HALVES.values() for seed in (0, 1)])
    assert [row.count("|") for row in rows] == [9, 9, 9, 9]
    assert "16 comments" in rows[2]
    assert "40 → 38" in rows[2]
    assert "| 50% |" in rows[2], "of the versions went live"
    assert f'system message "{BRIEFLY}"' in rows[3]


def outcome(half: Half, seed: int = 0) -> TrialOutcome:
    """A demo whose answers were all long and became short."""
    before, after = (
        Exam(
            [AnsweredQuestion(question, text, True, "") for question in QUESTIONS[:HELD_OUT] * SAMPLES], known
        )
        for text, known in ((LONG, 40), ("Snow is white.", 38))
    )
    return TrialOutcome(
        half, seed, "smollm2", 40, 12, seed == 0, before, after, 0.2, 5.0, 120.0, 2_000_000_000, "passed"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_burnish_that_it_runs(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "burnish", "demo", "--out", str(tmp_path)],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + within(60)
    while not (found := list(tmp_path.glob("burnish-demo-*/server.json"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = json.loads(found[0].read_text())["pid"]
    process.send_signal(number)
    _, errors = process.communicate(timeout=within(60))
    assert (process.returncode, errors) == (128 + number, b"")
    assert not list(tmp_path.glob("burnish-demo-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
