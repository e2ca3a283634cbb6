"""kill -9 of proxy, engine and trainer throughout the whole loop: everything is consistent afterwards."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from burnish.adapters.registry import Registry
from burnish.learner.runs import CONCLUDED
from tests.support.burnish import Burnish, start
from tests.support.patience import within
from tests.support.tiny_gguf import random_llama

ENGINE = "burnish.adapters.hosts.embedded_child"
TRAINER = "burnish.training"
FIRST_RATINGS = 12
# A new engine child boots in about a second; the machine may be training at the same time.
RECOVERY_S = 60.0
# With the tiny model a run takes ten seconds on two idle cores, most of it imports; a busy machine takes far longer.
STAGE_S = 240.0
SETTINGS = {
    "BURNISH_TRAIN__SCHEDULE": "manual",
    "BURNISH_TRAIN__MIN_RATINGS": "8",
    "BURNISH_TRAIN__MIN_GOOD": "2",
    "BURNISH_TRAIN__MIN_BAD": "2",
}
# Of the long form: random kills, and how long a run with the small model takes on two cores.
KILLS = 21
SEED = 20261121
LOOP_S = 36.0
# More ratings in a round would make a run longer than the round, and no kill would come after it.
RATINGS_A_ROUND = 3
LIMIT_S = 20.0
"""Of a request."""
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
        self.count += 1
        answer = ask(client, self.url, f"What is {WORDS[self.count % len(WORDS)]}? ({self.count})")
        if answer.status_code != 200 or self.wanted <= 0:
            return
        rating = {"rating": "good" if self.count % 2 else "bad"}
        rating["completion_id"] = answer.headers["x-burnish-completion-id"]
        rated = client.post(self.url + "/v1/feedback", json=rating)
        if rated.status_code == 201:
            self.acknowledged.add(rated.json()["id"])
            self.wanted -= 1

    @contextmanager
    def at_work(self, url: str, wanted: int = RATINGS_A_ROUND) -> Iterator[None]:
        """Rate in the background; a request that dies with a killed process is simply gone."""
        self.url, self.wanted = url, wanted
        self._stop.clear()

        def run() -> None:
            with httpx.Client(timeout=within(LIMIT_S)) as client:
                while not self._stop.wait(0.2):
                    with suppress(httpx.HTTPError):
                        self.step(client)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


def ask(client: httpx.Client, url: str, text: str) -> httpx.Response:
    body = {"model": "default", "max_tokens": 8, "messages": [{"role": "user", "content": text}]}
    return client.post(url + "/v1/chat/completions", json=body)


def children(burnish: Burnish, module: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(burnish.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if module in " ".join(process.cmdline()):
                found.append(process)
    return found


def orphans(data_dir: Path) -> list[int]:
    """Processes that still work for this data directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(data_dir) in line and (ENGINE in line or TRAINER in line):
            found.append(process.pid)
    return found


def wait_for(what: str, condition: Callable[[], object], limit_s: float) -> None:
    """Wait until a condition holds. Looked at often, so that a kill comes right after what it waits for."""
    limit_s = within(limit_s)
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s for {what}"
        time.sleep(0.02)


def answers(url: str) -> bool:
    with httpx.Client(timeout=within(LIMIT_S)) as client, suppress(httpx.HTTPError):
        return ask(client, url, "Hi").is_success
    return False


def get(url: str, path: str, **params: Any) -> Any:
    return httpx.get(url + path, params=params, timeout=within(LIMIT_S)).json()


def train(burnish: Burnish) -> httpx.Response:
    """Ask for a run; while another is under way that is refused."""
    return httpx.post(burnish.url + "/burnish/train", json={"force": True}, timeout=within(60))


def stored_ratings(url: str) -> set[str]:
    found: list[str] = []
    page: dict[str, Any] = {"has_more": True}
    while page["has_more"]:
        page = get(url, "/v1/feedback", limit=100, **({"before": found[-1]} if found else {}))
        found += [entry["id"] for entry in page["data"]]
    return set(found)


def live_version(url: str) -> int:
    return int(get(url, "/burnish/status")["live"]["version"])


@contextmanager
def promoting(burnish: Burnish, number: int) -> Iterator[threading.Thread]:
    """Make a version live in the background; what is killed meanwhile may cut the request off."""

    def promote() -> None:
        wanted = {"force": True, "reason": "the test wants a swap"}
        with suppress(httpx.HTTPError):
            url = f"{burnish.url}/burnish/adapters/{number}/promote"
            httpx.post(url, json=wanted, timeout=within(60))

    thread = threading.Thread(target=promote, daemon=True)
    thread.start()
    yield thread
    thread.join()


class House:
    """One data directory, the burnish that works on it, and the kills that it lives through."""

    def __init__(self, data_dir: Path, model: Path | None, epochs: int) -> None:
        self.data_dir = data_dir
        self.settings = SETTINGS | {"BURNISH_TRAIN__EPOCHS": str(epochs)}
        if model:
            self.settings["BURNISH_MODEL"] = str(model)
            # So far that the engine can be shown to apply the version, and through all steps.
            self.settings["BURNISH_TRAIN__LEARNING_RATE"] = "0.02"
            self.settings["BURNISH_TRAIN__ADVANCED__KL_STOP"] = "10"
        self.rater = Rater()
        self.burnish = start(data_dir, env=self.settings)

    def run(self) -> Path:
        """Start a run; returns its job directory. The one before it may still be ending."""
        answer: dict[str, Any] = {}

        def started() -> bool:
            posted = train(self.burnish)
            answer.update(posted.json())
            return posted.status_code == 202

        wait_for("a run to start", started, STAGE_S)
        return self.data_dir / "jobs" / str(answer["run_id"])

    def events(self) -> list[dict[str, Any]]:
        """The whole lines of the registry's history; read here without its code."""
        path = self.data_dir / "adapters" / "events.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def next_event(
        self, known: int, condition: Callable[[dict[str, Any]], bool], what: str
    ) -> dict[str, Any]:
        """Wait for a line of the history behind so many; returns it."""
        wait_for(what, lambda: any(map(condition, self.events()[known:])), STAGE_S)
        return next(filter(condition, self.events()[known:]))

    def kill_proxy(self) -> int:
        """Kill it and start it again; returns how many lines the history had in between."""
        self.burnish.kill()
        wait_for("its children to follow it", lambda: not orphans(self.data_dir), 15)
        known = len(self.events())
        self.burnish = start(self.data_dir, env=self.settings)
        self.rater.url = self.burnish.url
        return known

    def kill_child(self, module: str) -> None:
        """The youngest of this kind: an engine's is that of the newest version."""
        max(children(self.burnish, module), key=lambda child: child.create_time()).kill()

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = get(self.burnish.url, "/burnish/runs")["runs"]
        return found

    def check(self) -> None:
        """What must hold after every kill."""
        wait_for("an answer", lambda: answers(self.burnish.url), RECOVERY_S)
        lost = self.rater.acknowledged - stored_ratings(self.burnish.url)
        assert not lost, f"acknowledged ratings are gone: {sorted(lost)}"
        registry = Registry(self.data_dir / "adapters")
        for version in registry.versions():
            registry.verify(version.number)
        live = registry.live()
        status = get(self.burnish.url, "/burnish/status")
        wait_for(
            "the live version to be served",
            lambda: live_version(self.burnish.url) == registry.live(),
            RECOVERY_S,
        )
        if live:
            reasons = [event.reason for event in registry.events(live) if event.state == "live"]
            assert reasons, f"v{live} is live and nothing says why"
        assert status["log"]["healthy"]
        leftovers = [path.name for path in (self.data_dir / "adapters").glob("*tmp*")]
        assert not leftovers or status["learner"]["state"] != "idle", leftovers

    def close(self) -> None:
        assert self.burnish.stop() == 0
        wait_for("everything to end", lambda: not orphans(self.data_dir), 15)
        with sqlite3.connect(self.data_dir / "burnish.db") as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            stored = {row[0] for row in database.execute("SELECT id FROM feedback")}
        assert self.rater.acknowledged <= stored


@contextmanager
def house(data_dir: Path, model: Path | None, epochs: int) -> Iterator[House]:
    made = House(data_dir, model, epochs)
    try:
        with made.rater.at_work(made.burnish.url, FIRST_RATINGS):
            wait_for("a dozen ratings", lambda: len(made.rater.acknowledged) >= FIRST_RATINGS, 60)
        yield made
        made.close()
    finally:
        if made.burnish.process.poll() is None:
            made.burnish.kill()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_at_each_step_of_the_loop_a_process_may_die(tmp_path: Path) -> None:
    with house(tmp_path / "data", random_llama(tmp_path / "tiny.gguf"), epochs=4) as here:
        rater = here.rater
        # Capture and commit: the proxy, with a rating just acknowledged and other answers under way.
        with rater.at_work(here.burnish.url, wanted=2):
            known = len(rater.acknowledged)
            wait_for("a rating", lambda: len(rater.acknowledged) > known, STAGE_S)
            here.kill_proxy()
        here.check()

        # Train: the trainer, at its first step.
        job = here.run()
        wait_for("a step", (job / "metrics.jsonl").exists, STAGE_S)
        here.kill_child(TRAINER)
        wait_for("the run to end", lambda: here.runs()[0]["ended_at"], STAGE_S)
        assert here.runs()[0]["status"] == "failed"
        here.check()

        # Checkpoint: the proxy, and with it the trainer. The run goes on from there.
        job = here.run()
        wait_for("a checkpoint", (job / "checkpoint" / "progress.json").exists, STAGE_S)
        known = len(here.events())
        here.kill_proxy()
        assert not (job / "result.json").exists(), "it was killed too late to show anything"
        here.check()

        # Register: the proxy, when the version has just come into being. No gate has seen it.
        made = here.next_event(known, lambda event: event["state"] == "candidate", "a version")
        assert here.runs()[0]["id"] == job.name
        known = here.kill_proxy()
        judged = here.next_event(known, lambda event: "verdict" in event["details"], "its verdict after that")
        assert judged["version"] == made["version"]
        here.check()

        # Evaluate: first the candidate's engine, while it is asked; in the next run the evaluator.
        here.run()
        wait_for("the candidate's engine", lambda: len(children(here.burnish, ENGINE)) > 1, STAGE_S)
        here.kill_child(ENGINE)
        wait_for("the run to end", lambda: here.runs()[0]["ended_at"], STAGE_S)
        here.check()
        job = here.run()
        wait_for("replies to score", (job / "rollouts.jsonl").exists, STAGE_S)
        wait_for("the evaluator", lambda: children(here.burnish, TRAINER), STAGE_S)
        here.kill_child(TRAINER)
        wait_for("the run to end", lambda: here.runs()[0]["ended_at"], STAGE_S)
        assert here.runs()[0]["status"] == "failed"
        here.check()

        # Gate: the proxy, when the verdict has just been recorded. It holds.
        known = len(here.events())
        here.run()
        judged = here.next_event(known, lambda event: "verdict" in event["details"], "a verdict")
        here.kill_proxy()
        assert Registry(here.data_dir / "adapters").state(judged["version"]) == judged["state"]
        here.check()

        # Swap: the proxy, when the commit point has just been written. The version is live.
        number = judged["version"]
        known = len(here.events())
        with promoting(here.burnish, number):
            here.next_event(known, lambda event: event["state"] == "live", "the swap")
            here.kill_proxy()
        assert live_version(here.burnish.url) == number
        here.check()

        # Flip: the engine that has just got all requests; the version comes back.
        for version in (0, number):
            with promoting(here.burnish, version) as promotion:
                promotion.join()
        here.kill_child(ENGINE)
        here.check()
        assert live_version(here.burnish.url) == number


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_was_asked_for_goes_on_after_a_stop(tmp_path: Path, stop: signal.Signals) -> None:
    with house(tmp_path / "data", random_llama(tmp_path / "tiny.gguf"), epochs=12) as here:
        job = here.run()
        progress = job / "checkpoint" / "progress.json"
        wait_for("a checkpoint", progress.exists, STAGE_S)
        here.burnish.process.send_signal(stop)
        here.burnish.process.wait(within(30))
        wait_for("its children to follow it", lambda: not orphans(here.data_dir), 15)
        made = len(json.loads(progress.read_bytes())["steps"])
        before = [json.loads(line)["seconds"] for line in (job / "metrics.jsonl").read_text().splitlines()]
        assert not (job / "result.json").exists(), "it was stopped too late to show anything"

        here.burnish = start(here.data_dir, env=here.settings)
        wait_for("the run to end", lambda: here.runs()[0]["status"] in CONCLUDED, STAGE_S)
        (run,) = here.runs()
        assert run["id"] == job.name, "it is the same run"
        after = [json.loads(line)["seconds"] for line in (job / "metrics.jsonl").read_text().splitlines()]
        assert after[:made] == before[:made], "these steps were not made again"
        assert len(after) == run["result"]["steps"]
        registry = Registry(here.data_dir / "adapters")
        (version,) = registry.versions()
        learnt = version.manifest.feedback_ids + version.manifest.held_out
        assert sorted(learnt) == sorted(here.rater.acknowledged), "each rating once"
        assert get(here.burnish.url, "/burnish/status")["learner"]["failures"] == 0


def stir(burnish: Burnish, rng: random.Random) -> None:
    """Set the loop in motion: a training run, and now and then a change of the live version."""
    train(burnish)
    versions = [v.number for v in Registry(burnish.data_dir / "adapters").versions()]
    if versions and rng.random() < 0.6:
        with promoting(burnish, rng.choice(versions)):
            pass


def kill(here: House, victim: str, rng: random.Random) -> bool:
    """kill -9 one process; False when there was none of that kind any more."""
    if victim == "proxy":
        here.kill_proxy()
        return True
    if victim == "trainer":
        train(here.burnish)
        with suppress(AssertionError):  # the run may be at another stage, or have ended
            wait_for("a trainer", lambda: children(here.burnish, TRAINER), LOOP_S)
            time.sleep(rng.uniform(0, within(5)))
    living = children(here.burnish, ENGINE if victim == "engine" else TRAINER)
    if living:
        rng.choice(living).kill()
    return bool(living)


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_every_process_may_die_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    killed = {"proxy": 0, "engine": 0, "trainer": 0}
    seen_runs: set[str] = set()
    with house(tmp_path / "data", None, epochs=1) as here:
        while sum(killed.values()) < KILLS:
            with here.rater.at_work(here.burnish.url):
                stir(here.burnish, rng)
                time.sleep(rng.uniform(0, within(LOOP_S)))
                victim = min(killed, key=lambda name: (killed[name], rng.random()))
                if not kill(here, victim, rng):
                    continue
                killed[victim] += 1
            here.check()
            seen_runs |= {run["status"] for run in here.runs()}
    assert sum(killed.values()) >= 20, killed
    assert "failed" in seen_runs
