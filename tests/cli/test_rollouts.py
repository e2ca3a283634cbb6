"""``burnish rollouts``, and what other commands say of rollouts."""

from __future__ import annotations

from typing import Any

import httpx

from tests.support.burnish import Burnish
from tests.support.patience import within
from tests.support.program import call, said

TASK = "a deck of cards"


def test_rollouts_are_listed_and_status_says_that_they_wait(burnish: Burnish) -> None:
    empty = call("rollouts", "--task", "nobody", url=burnish.url)
    assert (empty.returncode, "no rollout so far" in empty.stdout) == (0, True)
    ended, _ = (_begin(burnish, seed=seed) for seed in (7, 8))
    _send(burnish, ended, "reward", value=0.5)
    _send(burnish, ended, "end")
    (second, first) = said("rollouts", "--task", TASK, url=burnish.url)["data"]
    assert (first["reward"], first["status"], second["status"]) == (0.5, "ended", "open")
    shown = call("rollouts", "--task", TASK, url=burnish.url).stdout
    assert ended["id"][:12] in shown
    status = call("status", url=burnish.url).stdout
    assert "1 under way" in status
    assert "burnish train --rollouts 'a deck of cards'" in " ".join(status.split())


def test_a_run_on_rollouts_is_refused_in_words(burnish: Burnish) -> None:
    refused = call("train", "--rollouts", "nobody", url=burnish.url)
    assert refused.returncode == 1
    assert "no rollout of the task 'nobody' is ready" in " ".join(refused.stderr.split())
    unknown = call("train", "--objective", "magic", url=burnish.url)
    assert (unknown.returncode, "is not an objective" in " ".join(unknown.stderr.split())) == (2, True)


def test_only_candidates_are_judged(burnish: Burnish) -> None:
    judged = call("adapters", "judge", "base", url=burnish.url)
    assert (judged.returncode, "is no candidate" in " ".join(judged.stderr.split())) == (1, True)


def _begin(burnish: Burnish, **said: Any) -> dict[str, Any]:
    asked = {"task": TASK, **said}
    return dict(httpx.post(f"{burnish.url}/v1/rollouts", json=asked, timeout=within(60)).json())


def _send(burnish: Burnish, rollout: dict[str, Any], what: str, **said: Any) -> None:
    url = f"{burnish.url}/v1/rollouts/{rollout['id']}/{what}"
    assert httpx.post(url, json=said, timeout=within(60)).status_code == 200
