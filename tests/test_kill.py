"""kill -9 of proxy, engine and trainer at random points of the whole loop: everything is consistent afterwards."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from burnish.adapters.registry import Registry
from tests.support.burnish import Burnish, start

KILLS = 21
SEED = 20261121
ENGINE = "burnish.adapters.hosts.embedded_child"
TRAINER = "burnish.training"
# A small run – load, train, register, sample, evaluate, gate – takes about this long on two cores.
LOOP_S = 36.0
# Ratings of one round: more would make the runs longer than the rounds, and no kill would meet what comes after.
RATINGS_A_ROUND = 3
FIRST_RATINGS = 12
# A new engine child boots in about a second; the machine may be training at the same time.
RECOVERY_S = 30.0
SETTINGS = {
    "BURNISH_TRAIN__SCHEDULE": "manual",
    "BURNISH_TRAIN__MIN_RATINGS": "8",
    "BURNISH_TRAIN__MIN_GOOD": "2",
    "BURNISH_TRAIN__MIN_BAD": "2",
    "BURNISH_TRAIN__EPOCHS": "1",
}
WORDS = ["rust", "tea", "the moon", "bread", "rain", "a fox", "paper", "salt", "music", "snow"]


class Rater:
    """Asks without pause and rates some answers; remembers what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.url = ""
        self.count = 0
        self.wanted = 0
        """Ratings still to give in this round."""
        self._stop = threading.Event()

    def step(self, client: httpx.Client) -> None:
        """Ask one question and rate the answer."""
        self.count += 1
        question = f"What is {WORDS[self.count % len(WORDS)]}? ({self.count})"
        answer = client.post(
            self.url + "/v1/chat/completions",
            json={"model": "default", "max_tokens": 8, "messages": [{"role": "user", "content": question}]},
        )
        if answer.status_code != 200 or self.wanted <= 0:
            return
        rated = client.post(
            self.url + "/v1/feedback",
            json={
                "completion_id": answer.headers["x-burnish-completion-id"],
                "rating": "good" if self.count % 2 else "bad",
            },
        )
        if rated.status_code == 201:
            self.acknowledged.add(rated.json()["id"])
            self.wanted -= 1

    @contextmanager
    def at_work(self, url: str, wanted: int = RATINGS_A_ROUND) -> Iterator[None]:
        """Rate in the background; a request that dies with a killed process is simply gone."""
        self.url, self.wanted = url, wanted
        self._stop.clear()

        def run() -> None:
            with httpx.Client(timeout=20) as client:
                while not self._stop.wait(0.2):
                    try:
                        self.step(client)
                    except httpx.HTTPError:
                        time.sleep(0.2)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


def children(burnish: Burnish, module: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(burnish.pid).children(recursive=True):
        try:
            if module in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def orphans(data_dir: Path) -> list[int]:
    """Processes that still work for this data directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(data_dir) in line and (ENGINE in line or TRAINER in line):
            found.append(process.pid)
    return found


def wait_for(what: str, condition: object, limit_s: float) -> None:
    assert callable(condition)
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s for {what}"
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        return (
            httpx.post(
                url + "/v1/chat/completions",
                json={"model": "default", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]},
                timeout=20,
            ).status_code
            == 200
        )
    except httpx.HTTPError:
        return False


def stored_ratings(url: str) -> set[str]:
    found: set[str] = set()
    before = None
    while True:
        params = {"limit": 100} | ({"before": before} if before else {})
        page = httpx.get(url + "/v1/feedback", params=params, timeout=20).json()["data"]
        found |= {entry["id"] for entry in page}
        if len(page) < 100:
            return found
        before = page[-1]["id"]


def live_version(url: str) -> int:
    return int(httpx.get(url + "/burnish/status", timeout=20).json()["live"]["version"])


def check(burnish: Burnish, rater: Rater) -> None:
    """What must hold after every kill."""
    wait_for("an answer", lambda: answers(burnish.url), RECOVERY_S)
    lost = rater.acknowledged - stored_ratings(burnish.url)
    assert not lost, f"acknowledged ratings are gone: {sorted(lost)}"
    registry = Registry(burnish.data_dir / "adapters")
    for version in registry.versions():
        registry.verify(version.number)
    live = registry.live()
    status = httpx.get(burnish.url + "/burnish/status", timeout=20).json()
    wait_for(
        "the live version to be served",
        lambda: (
            httpx.get(burnish.url + "/burnish/status", timeout=20).json()["live"]["version"]
            == registry.live()
        ),
        RECOVERY_S,
    )
    if live:
        reasons = [event.reason for event in registry.events(live) if event.state == "live"]
        assert reasons, f"v{live} is live and nothing says why"
    assert status["log"]["healthy"]
    leftovers = [path.name for path in (burnish.data_dir / "adapters").glob("*tmp*")]
    assert not leftovers or status["learner"]["state"] != "idle", leftovers


def train(burnish: Burnish) -> None:
    """Ask for a run, whatever the ratings are that the live version has not learnt yet."""
    httpx.post(burnish.url + "/burnish/train", json={"force": True}, timeout=20)


def stir(burnish: Burnish, rng: random.Random) -> None:
    """Set the loop in motion: a training run, and now and then a change of what is live."""
    train(burnish)
    versions = [v.number for v in Registry(burnish.data_dir / "adapters").versions()]
    if versions and rng.random() < 0.6:
        number = rng.choice(versions)

        def promote() -> None:
            with suppress(httpx.HTTPError):
                httpx.post(
                    f"{burnish.url}/burnish/adapters/{number}/promote",
                    json={"force": True, "reason": "the test wants a swap"},
                    timeout=60,
                )

        threading.Thread(target=promote, daemon=True).start()


def kill(burnish: Burnish, victim: str, rng: random.Random) -> bool:
    """kill -9 one process; False when there was none of that kind any more."""
    if victim == "proxy":
        burnish.kill()
        return True
    if victim == "trainer":
        train(burnish)
        with suppress(AssertionError):  # the run may be at another stage, or have ended
            wait_for("a trainer", lambda: children(burnish, TRAINER), LOOP_S)
            time.sleep(rng.uniform(0, 5))
    living = children(burnish, ENGINE if victim == "engine" else TRAINER)
    if living:
        rng.choice(living).kill()
    return bool(living)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_process_may_die_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    data_dir = tmp_path / "data"
    rater = Rater()
    burnish = start(data_dir, env=SETTINGS)
    killed = {"proxy": 0, "engine": 0, "trainer": 0}
    seen_runs: set[str] = set()
    try:
        with rater.at_work(burnish.url, FIRST_RATINGS):
            wait_for("a dozen ratings", lambda: len(rater.acknowledged) >= FIRST_RATINGS, 60)
        while sum(killed.values()) < KILLS:
            with rater.at_work(burnish.url):
                stir(burnish, rng)
                time.sleep(rng.uniform(0, LOOP_S))
                victim = min(killed, key=lambda name: (killed[name], rng.random()))
                if not kill(burnish, victim, rng):
                    continue
                killed[victim] += 1
            if victim == "proxy":
                wait_for("its children to follow it", lambda: not orphans(data_dir), 15)
                burnish = start(data_dir, env=SETTINGS)
            check(burnish, rater)
            runs = httpx.get(burnish.url + "/burnish/runs", timeout=20).json()["runs"]
            seen_runs |= {run["status"] for run in runs}
        assert burnish.stop() == 0
        wait_for("everything to end", lambda: not orphans(data_dir), 15)
    finally:
        if burnish.process.poll() is None:
            burnish.kill()
    assert sum(killed.values()) >= 20, killed
    assert {"failed", "interrupted"} <= seen_runs
    with sqlite3.connect(data_dir / "burnish.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        stored = {row[0] for row in database.execute("SELECT id FROM feedback")}
    assert rater.acknowledged <= stored
