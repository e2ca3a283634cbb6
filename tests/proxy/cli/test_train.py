"""Training and versions from the command line, with a real run on the small model."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from burnish.adapters.questions import QUESTIONS
from tests.support.burnish import Burnish, running
from tests.support.program import ask, call, on_terminal, said

SETTINGS = {"BURNISH_TRAIN__SCHEDULE": "manual", "BURNISH_TRAIN__EPOCHS": "1"}
RATED = 16
# On two busy cores.
RUN_LIMIT_S = 240


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
def test_a_run_is_planned_begun_left_alone_and_its_version_promoted_and_undone(rated: Burnish) -> None:
    plan = said("train", "--dry-run", url=rated.url)
    assert plan["would_train"]
    assert sum(plan["trains_on"].values()) + plan["held_out"] == RATED
    assert said("history", "-n", "1", url=rated.url)["has_more"]
    assert said("adapters", "list", url=rated.url)["adapters"] == []

    run_id = _begin_and_leave(rated)
    ended = _wait_until_ended(rated, run_id)
    assert ended["status"] in ("live", "candidate", "rejected"), ended
    assert call("train", "--dry-run", url=rated.url).returncode == 0

    shown = call("adapters", "show", "1", url=rated.url).stdout
    assert "smollm2@v1" in shown
    assert ended["reason"].split(":")[0] in " ".join(shown.split())
    assert "The gate " in shown
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
        screen.until("training", RUN_LIMIT_S)
        screen.until("loss", RUN_LIMIT_S)
        process.send_signal(signal.SIGINT)
        screen.until("continues in the background")
        assert process.wait(30) == 130
    runs = httpx.get(rated.url + "/burnish/runs").json()["runs"]
    assert runs[0]["ended_at"] is None
    return str(runs[0]["id"])


def _wait_until_ended(rated: Burnish, run_id: str) -> dict[str, str]:
    deadline = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < deadline:
        shown = httpx.get(f"{rated.url}/burnish/runs/{run_id}").json()
        if shown["ended_at"]:
            return dict(shown)
        time.sleep(0.5)
    raise AssertionError(f"{run_id} has not ended: {shown}")


def test_one_sided_ratings_are_no_reason_to_train(tmp_path: Path) -> None:
    with running(tmp_path / "data", env=SETTINGS) as up:
        assert call("train", url=up.url).returncode == 1
        ask(up.url)
        assert call("good", url=up.url).returncode == 0
        refused = call("train", "--wait", "--json", url=up.url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "the only ready rating is good: rate some answers bad" in refused.stderr
        assert not said("train", "--dry-run", url=up.url)["would_train"]
        assert said("train", "--dry-run", "--force", url=up.url)["would_train"]
