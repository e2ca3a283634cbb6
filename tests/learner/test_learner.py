"""What the learner does around a run: starting, giving up, changing what is live, telling how it stands."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.errors import CorruptAdapter
from burnish.gate import in_words
from burnish.learner.plan import RunOptions
from burnish.proxy.ids import run_id
from burnish.proxy.log.runs import Run
from burnish.training.job import JobDirectory, PolicyReply
from burnish.training.presets import hyperparameters
from tests.learner.conftest import Open, World
from tests.proxy.log.exchanges import capture, rate, until, user

UNDECIDED = {"outcome": "undecided", "reason": "too few ratings", "checks": []}
REJECTED = {"outcome": "rejected", "reason": "gibberish", "checks": []}


def candidate(world: World, seed: int) -> int:
    """A version on which the gate could not decide."""
    number = world.make_version(seed).number
    world.registry.record(number, "candidate", "too few ratings", verdict=UNDECIDED)
    return number


async def serves(world: World, number: int) -> bool:
    await world.ask([user("Hi")], max_tokens=2)
    return world.registry.live() == world.swap.route.live.version == number


async def test_nothing_rated_means_nothing_to_do(open_world: Open) -> None:
    world = await open_world(schedule="auto")
    status = (await world.http.post("/burnish/resume")).json()
    assert (status["state"], status["run"]) == ("idle", None)
    assert "no rating is ready" in status["reason"]
    for body in ({}, {"force": True}):
        assert "no rating is ready" in await world.refused("/burnish/train", body)
    dry = (await world.http.post("/burnish/train", json={"dry_run": True})).json()
    assert (dry["would_train"], dry["parent"]) == (False, 0)
    assert (await world.http.get("/burnish/runs")).json() == {"runs": []}
    assert (await world.http.get("/burnish/runs/run_x")).status_code == 404
    nothing = {"live": 0, "previous": None, "waiting": None, "adapters": []}
    assert (await world.http.get("/burnish/adapters")).json() == nothing
    base = (await world.http.get("/burnish/adapters/0")).json()
    assert (base["state"], base["events"]) == ("live", [])


async def test_one_sided_ratings_wait_and_say_so(open_world: Open) -> None:
    world = await open_world(schedule="auto", min_ratings=2, min_good=1, min_bad=1)
    await world.rated(-1.0, -1.0, -1.0)
    assert "ready are: 0 good, 3 bad" in await world.refused("/burnish/train", {})
    forced = (await world.http.post("/burnish/train", json={"dry_run": True, "force": True})).json()
    assert forced["would_train"]
    assert forced["hyperparameters"]["kl_beta"] > 0, "something must keep the model speaking"
    assert world.learner.status()["state"] == "idle"


async def test_corrections_and_preferences_alone_are_enough_to_learn_from(open_world: Open) -> None:
    world = await open_world(schedule="manual")
    better, worse, wrong = (capture(world.log, [user("What is tea?")], f"Answer {n}.") for n in range(3))
    await rate(world.log, better, None, preferred_over=worse)
    await rate(world.log, wrong, None, correction="A drink.")
    dry = await world.learner.dry_run()
    assert dry["ready"] == {"new": 2, "good": 0, "bad": 0, "neutral": 2, "comments": 0, "pairs": 2}
    assert (dry["would_train"], dry["objective"]) == (True, "dpo")
    await world.rated(-1.0)
    assert not (await world.learner.dry_run())["would_train"], "now ratings decide, and they are one-sided"


async def test_switched_off_is_off_even_by_hand(open_world: Open) -> None:
    world = await open_world(enabled=False)
    await world.rated(1.0, -1.0)
    assert "--no-train" in await world.refused("/burnish/train", {"force": True})
    assert world.learner.status()["state"] == "off"


async def test_a_dry_run_says_what_would_be_learnt_and_changes_nothing(open_world: Open) -> None:
    world = await open_world(schedule="auto", learning_rate=1e-5, preset="careful")
    await world.rated(*[1.0] * 12, *[-1.0] * 8)
    dry = await world.learner.dry_run()
    assert dry["would_train"] and dry["by_itself"].endswith("; or 12 more ratings")
    assert dry["ready"] == {"new": 20, "good": 12, "bad": 8, "neutral": 0, "comments": 0, "pairs": 0}
    assert (dry["trains_on"], dry["held_out"]) == ({"good": 9, "bad": 5}, 6)
    expected = hyperparameters("careful", learning_rate=1e-5)
    assert dry["hyperparameters"] == expected.model_dump(mode="json"), "the preset fills the rest"
    assert dry["estimate"].keys() == {"seconds", "by", "longest_prompt"}
    forced = await world.learner.dry_run(RunOptions(force=True))
    assert forced["hyperparameters"] == dry["hyperparameters"], "what is not one-sided is not held back"
    assert not (world.data / "jobs").exists() and not await world.log.runs()


async def test_a_run_that_fails_says_why_and_leaves_all_as_it_was(open_world: Open, tmp_path: Path) -> None:
    few = {"min_ratings": 4, "min_good": 2, "min_bad": 2}
    world = await open_world(schedule="auto", base_weights=tmp_path / "gone.gguf", **few)
    await world.rated(1.0, 1.0, -1.0, -1.0)
    run = await world.run_when(lambda run: run.ended_at is not None, 60)
    assert (run.status, run.version, run.ratings) == ("failed", None, 4)
    assert "gone.gguf" in run.reason
    assert await serves(world, 0)
    status = (await world.http.post("/burnish/resume")).json()
    assert "the last run failed, next try in" in status["reason"], "it backs off"
    assert len(await world.log.runs()) == 1
    assert status["ready"]["new"] == 4
    shown = (await world.http.get(f"/burnish/runs/{run.id}")).json()
    assert (shown["status"], shown["progress"]["phase"]) == ("failed", "loading")
    assert (shown["progress"]["eta_s"], shown["step"]) == (None, None)
    # The user need not wait.
    second = (await world.http.post("/burnish/train", json={})).json()["run_id"]
    assert (await world.http.get(f"/burnish/runs/{second}")).status_code == 200, "it can be followed at once"
    assert f"{second} is under way" in await world.refused("/burnish/train", {})
    await world.ended(second, 60)


async def test_a_disk_that_cannot_be_written_fails_the_run_only(open_world: Open, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file where the folder of jobs should be")
    world = await open_world(jobs=tmp_path / "occupied")
    await world.rated(1.0, -1.0)
    run = await world.ended(await world.learner.train_now(), 10)
    assert run.status == "failed" and "occupied" in run.reason
    assert await serves(world, 0)


async def test_what_a_crash_left_behind_is_put_in_order(open_world: Open) -> None:
    world = await open_world()
    judged, unjudged = candidate(world, 1), world.make_version(2).number
    (world.registry.root / "v0003.tmp").mkdir()
    crashed = Run(run_id(), time.time(), None, "evaluating", "32 new ratings", unjudged, 32)
    await world.log.start_run(crashed)
    world = await open_world()
    # The job of this run is gone, so nothing can judge it.
    await until(lambda: world.registry.get(unjudged).state == "rejected")
    assert world.registry.get(judged).state == "candidate"
    assert "there is no run" in world.registry.get(unjudged).reason
    assert not list(world.registry.root.glob("*.tmp"))
    run = await world.log.run(crashed.id)
    assert run.status == "interrupted" and run.ended_at
    assert world.learner.status()["failures"] == 0, "a run that was stopped is no failure"


async def test_promote_and_roll_back_by_hand(open_world: Open) -> None:
    world = await open_world()
    first, second = candidate(world, 1), candidate(world, 2)
    for number in (first, second):
        answer = await world.http.post(f"/burnish/adapters/{number}/promote", json={"reason": "looks good"})
        assert answer.json() == {"live": number, "previous": number - 1, "note": None}
        assert await serves(world, number)
    listed = (await world.http.get("/burnish/adapters")).json()
    assert [(a["version"], a["state"]) for a in listed["adapters"]] == [(1, "retired"), (2, "live")]
    back = [await world.http.post("/burnish/adapters/rollback", json={}) for _ in range(2)]
    assert [answer.json()["live"] for answer in back] == [1, 0]
    assert "nothing to go back to" in await world.refused("/burnish/adapters/rollback", {})
    assert await serves(world, 0)
    assert (await world.http.post("/burnish/adapters/rollback", json={"to": 2})).json()["live"] == 2
    assert (await world.http.post("/burnish/adapters/rollback", json={"to": 0})).json()["live"] == 0
    assert world.registry.events(1)[-1].reason == "rolled back by hand"


async def test_what_the_gate_did_not_let_pass_needs_force(open_world: Open) -> None:
    world = await open_world()
    rejected, unjudged = world.make_version(1).number, world.make_version(2).number
    world.registry.record(rejected, "rejected", "gibberish", verdict=REJECTED)
    words = "was rejected: gibberish. To promote it anyway: burnish adapters promote v1 --force"
    assert words in await world.refused(f"/burnish/adapters/{rejected}/promote", {})
    assert "has not been judged" in await world.refused(f"/burnish/adapters/{unjudged}/promote", {})
    assert await serves(world, 0)
    assert "never live" in await world.refused("/burnish/adapters/rollback", {"to": rejected})
    forced = await world.http.post(f"/burnish/adapters/{rejected}/promote", json={"force": True})
    assert forced.json()["live"] == rejected
    assert await serves(world, rejected)


async def test_a_damaged_version_does_not_go_live(open_world: Open) -> None:
    world = await open_world()
    number = candidate(world, 1)
    path = world.registry.get(number).path / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert "nothing was changed" in await world.refused(f"/burnish/adapters/{number}/promote", {})
    with pytest.raises(CorruptAdapter):
        world.registry.verify(number)
    assert await serves(world, 0)


async def test_a_version_is_shown_with_its_verdict_and_its_answers(open_world: Open) -> None:
    world = await open_world()
    number = candidate(world, 1)
    job = JobDirectory(world.data / "jobs" / "run_1")
    job.path.mkdir(parents=True)
    messages = ({"role": "system", "content": "Be brief."}, user([{"type": "text", "text": "Hi?"}]))
    asked: dict[str, Any] = {"prompt_id": "p", "messages": messages, "finished": True}
    new = PolicyReply(policy="candidate", version=number, reply="Hi.", **asked)
    old = PolicyReply(policy="incumbent", version=0, reply="Hello there.", **asked)
    job.write_replies([new, old])
    shown = (await world.http.get(f"/burnish/adapters/{number}")).json()
    missing = await world.http.get("/burnish/adapters/7")
    odd = await world.http.get("/burnish/adapters/v1")
    assert shown["manifest"]["base_digest"] == world.host.base_digest
    assert shown["verdict"] == in_words(UNDECIDED | {"examples": []})
    assert [event["state"] for event in shown["events"]] == ["candidate", "candidate"]
    whole = {"tool_calls": [], "finished": True, "error": None}
    before = {"version": 0, "reply": "Hello there."} | whole
    after = {"version": number, "reply": "Hi."} | whole
    assert shown["samples"] == [{"prompt": "Hi?", "before": before, "after": after}]
    assert missing.status_code == odd.status_code == 404
    assert "no version 7 (versions: v1)" in missing.json()["error"]["message"]


BAD_REQUESTS: list[tuple[str, bytes, str, int, str | None]] = [
    ("/burnish/train", b"{}", "text/plain", 415, None),
    ("/burnish/train", b"{", "application/json", 400, None),
    ("/burnish/train", b"[]", "application/json", 422, None),
    ("/burnish/train", b'{"dry_run": "yes"}', "application/json", 422, "dry_run"),
    ("/burnish/train", b'{"dryrun": true}', "application/json", 422, "dryrun"),
    ("/burnish/train", b" " * (64 * 1024 + 1), "application/json", 413, None),
    ("/burnish/adapters/rollback", b'{"to": -1}', "application/json", 422, "to"),
    ("/burnish/adapters/rollback", b'{"to": "base"}', "application/json", 422, "to"),
    ("/burnish/adapters/rollback", b'{"to": 9}', "application/json", 404, None),
    ("/burnish/adapters/9/promote", b"{}", "application/json", 404, None),
    ("/burnish/adapters/9/promote", b'{"reason": ""}', "application/json", 422, "reason"),
]


async def test_malformed_requests_get_the_status_and_the_field(open_world: Open) -> None:
    world = await open_world()
    for path, body, kind, status, param in BAD_REQUESTS:
        answer = await world.http.post(path, content=body, headers={"content-type": kind})
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), (path, body)
        assert answer.json()["error"]["message"]
    for limit in ("0", "x", "1001", "-1"):
        assert (await world.http.get("/burnish/runs", params={"limit": limit})).status_code == 422
