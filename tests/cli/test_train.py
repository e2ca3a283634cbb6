"""Training and versions from the command line, with a real run on the small model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from burnish.gate.questions import CLAIMS, FACTS, QUESTIONS
from burnish.training.phases import Phase
from tests.support.burnish import Burnish, running
from tests.support.patience import within
from tests.support.program import ask, call, on_terminal, run, said

SETTINGS = {"BURNISH_TRAIN__SCHEDULE": "manual", "BURNISH_TRAIN__EPOCHS": "1"}
RATED = 16
IDLE = "no run is under way: the schedule is manual: start a run with `burnish train`\n"
# On two busy cores.
RUN_LIMIT_S = 360


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    with running(tmp_path_factory.mktemp("burnish") / "data", env=SETTINGS) as up:
        for number in range(RATED):
            completion = ask(up.url, f"What is tea? ({number})")
            body = {"completion_id": completion, "rating": "good" if number % 2 else "bad"}
            assert httpx.post(up.url + "/v1/feedback", json=body).status_code == 201
        yield up


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_is_planned_begun_left_alone_and_its_version_promoted(rated: Burnish, tmp_path: Path) -> None:
    plan = said("train", "--dry-run", url=rated.url)
    assert plan["would_train"]
    assert sum(plan["trains_on"].values()) + plan["held_out"] == RATED
    assert said("history", "-n", "1", url=rated.url)["has_more"]
    assert said("adapters", "list", url=rated.url)["adapters"] == []

    idle = call("watch", url=rated.url)
    assert (idle.returncode, idle.stdout) == (0, IDLE)

    run_id = _begin_and_leave(rated)
    ended = _watch_in_every_way(rated, run_id, tmp_path)
    assert ended["status"] in ("live", "candidate", "rejected"), ended
    assert "the last run ended as: v1, " in call("watch", url=rated.url).stdout
    _check_events(rated, ended)
    assert call("train", "--dry-run", url=rated.url).returncode == 0

    shown = call("adapters", "show", "1", url=rated.url).stdout
    assert "smollm2@v1" in shown
    assert ended["reason"].split(":")[0] in " ".join(shown.split())
    assert "checks" in shown
    assert "simple facts" in shown
    assert any(each in shown for each in ("What is tea? (", *QUESTIONS)), "replies stand side by side"
    listed = said("adapters", "list", url=rated.url)
    assert [(each["version"], each["state"]) for each in listed["adapters"]] == [(1, ended["status"])]
    promoted = said("adapters", "promote", "v1", "--force", "--reason", "a test", url=rated.url)
    assert promoted["live"] == 1
    assert said("status", url=rated.url)["live"]["name"] == "smollm2@v1"
    assert said("adapters", "rollback", url=rated.url)["live"] == 0
    assert call("adapters", "rollback", "9", url=rated.url).returncode == 1


def _begin_and_leave(rated: Burnish) -> str:
    """Watch a run begin on a terminal and press Ctrl-C."""
    with on_terminal("train", "--wait", "--url", rated.url) as (screen, process):
        screen.until("training", within(RUN_LIMIT_S))
        screen.until("loss", within(RUN_LIMIT_S))
        process.send_signal(signal.SIGINT)
        screen.until("continues in the background")
        assert process.wait(within(30)) == 130
    assert "under way" in call("train", url=rated.url).stderr
    refused = call("train", "--wait", "--refresh", url=rated.url)
    assert (refused.returncode, refused.stderr.count("To watch it: burnish watch")) == (1, 1)
    runs = httpx.get(rated.url + "/burnish/runs").json()["runs"]
    assert runs[0]["ended_at"] is None
    return str(runs[0]["id"])


def _watch_in_every_way(rated: Burnish, run_id: str, folder: Path) -> dict[str, Any]:
    """Watch a run that is under way, by three commands at once; return its record."""
    with _watching(folder / "lines", rated.url), _watching(folder / "json", rated.url, "--json"):
        learner = said("status", url=rated.url)["learner"]
        assert learner["run"]["progress"]["phase"] in get_args(Phase)
        shown = " ".join(call("status", url=rated.url).stdout.split())
        assert "to watch it: burnish watch" in shown
        assert f"step {learner['run']['progress']['step']} of 9" in shown
        joined = run("train", "--wait", "--json", url=rated.url, limit_s=RUN_LIMIT_S)
    assert f"{run_id} is under way already" in joined.stderr
    ended: dict[str, Any] = json.loads(joined.stdout)
    assert (joined.returncode, ended["id"]) == (0, run_id)

    phases = [line.split()[1] for line in (folder / "lines").read_text().splitlines()]
    assert [each for each in phases if each in get_args(Phase)][:3] == ["training", "staging", "sampling"]
    looks = [json.loads(line) for line in (folder / "json").read_text().splitlines()]
    assert looks[-1] == ended
    counted = [(look["progress"]["done"], look["progress"]["total"]) for look in looks if _of(look, "facts")]
    assert counted == sorted(counted)
    assert {total for _, total in counted} == {len(FACTS) + len(CLAIMS)}
    assert any(look["progress"]["eta_s"] for look in looks if _of(look, "sampling"))
    assert looks[-1]["progress"]["eta_s"] is None
    return ended


def _of(look: dict[str, Any], phase: str) -> bool:
    return bool(look["progress"]["phase"] == phase and not look["ended_at"])


@contextmanager
def _watching(output: Path, url: str, *flags: str) -> Iterator[None]:
    """Let ``burnish watch`` write into a file; at the end it must have ended well."""
    command = [sys.executable, "-m", "burnish", "watch", *flags, "--url", url]
    with (
        output.open("wb") as file,
        subprocess.Popen(command, stdout=file, env=os.environ | {"COLUMNS": "200"}) as process,
    ):
        try:
            yield
            assert process.wait(within(30)) == 0
        finally:
            process.kill()


def _check_events(rated: Burnish, ended: dict[str, Any]) -> None:
    """What ``up`` printed, and kept with the moment of each."""
    kept = (rated.data_dir / "burnish.log").read_text()
    printed = " ".join(rated.log_file.read_text().split())
    events = (
        "training has started: you asked for it",
        f"v1 is trained and stored: {ended['result']['ratings']} ratings, {ended['result']['steps']} steps",
        "v1 and the base model have answered",
        f"v1 is {'a candidate' if ended['status'] == 'candidate' else ended['status']}: ",
    )
    places = [kept.index(event) for event in events]
    assert places == sorted(places)
    assert all(event in printed for event in events)


def test_one_sided_ratings_are_no_reason_to_train(tmp_path: Path) -> None:
    with running(tmp_path / "data", env=SETTINGS) as up:
        assert call("train", url=up.url).returncode == 1
        ask(up.url)
        assert call("good", url=up.url).returncode == 0
        refused = call("train", "--wait", "--json", url=up.url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "ready are: 1 good, 0 bad, 0 comments" in refused.stderr
        assert not said("train", "--dry-run", url=up.url)["would_train"]
        assert said("train", "--dry-run", "--force", url=up.url)["would_train"]


def test_waiting_for_a_run_ends_with_ctrl_c(tmp_path: Path) -> None:
    with running(tmp_path / "data", env=SETTINGS) as up:
        with on_terminal("watch", "--wait", "--url", up.url, env={"COLUMNS": "200"}) as (screen, process):
            screen.until("no run is under way yet: ")
            process.send_signal(signal.SIGINT)
            screen.until("no longer waiting for a run")
            assert process.wait(within(30)) == 130
        idle = said("watch", url=up.url)
        assert (idle["run"], idle["latest"]) == (None, None)


def test_nobody_waits_for_a_run_that_cannot_start(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--no-train") as up:
        refused = call("watch", "--wait", url=up.url)
        assert refused.returncode == 1
        assert "training is switched off (--no-train" in refused.stdout
        assert "nothing to wait for" in refused.stderr
