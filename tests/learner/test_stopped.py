"""Runs that the end of burnish stops: they go on from what they had, or start over, and say which."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.manifest import State
from burnish.learner.plan import RunOptions
from burnish.learner.stopped import FILE, MAX_CRASHES, Resumption, resumption
from burnish.proxy.ids import run_id
from burnish.proxy.log import Keep, Log
from burnish.proxy.log.runs import Run
from burnish.training.job import JobDirectory, PolicyReply
from tests.learner.conftest import Open, World
from tests.learner.test_plan import rated
from tests.proxy.log.exchanges import all_rated, capture, rate, until, user
from tests.support.program import call

EARLIER = "texts of the checkpoint"


async def stopped(open_world: Open, **options: Any) -> tuple[World, JobDirectory]:
    """A world in which burnish stopped just after "Train now": the trainer had a checkpoint."""
    world = await open_world()
    await world.rated(1.0, -1.0, 1.0, -1.0)
    run = await world.learner.train_now(RunOptions(**options))
    await world.trainer()
    await world.learner.stop()
    job = world.learner.job(run)
    job.checkpoint.mkdir(exist_ok=True)
    (job.checkpoint / "lessons.json").write_text(EARLIER)
    return world, job


def kept(job: JobDirectory) -> bool:
    return (job.checkpoint / "lessons.json").exists()


async def going_on(world: World, job: JobDirectory, words: str) -> Run:
    """The run when it is under way again, and says how."""
    return await world.run_when(
        lambda run: run.id == job.path.name and run.ended_at is None and words in run.reason, 60
    )


async def test_train_now_is_not_forgotten_and_nothing_calls_it_failed(open_world: Open) -> None:
    world, job = await stopped(open_world, force=True)
    run = await world.log.run(job.path.name)
    assert (run.status, run.reason) == (
        "interrupted",
        "stopped while loading; goes on when burnish runs again",
    )
    assert world.learner.status()["failures"] == 0
    reopened = await open_world()
    run = await going_on(reopened, job, "goes on after a stop")
    assert run.reason.startswith("you asked for it")
    assert kept(job)
    assert (resumption(job.path) or Resumption(options=RunOptions(), by_user=False, reason="")).options.force
    assert len(await reopened.log.runs()) == 1


async def test_what_was_rated_since_waits_for_the_next_run(open_world: Open) -> None:
    world, job = await stopped(open_world)
    await world.rated(1.0, -1.0)
    reopened = await open_world()
    await going_on(reopened, job, "goes on after a stop")
    assert len(job.samples()) == 4
    assert kept(job)


async def undo(world: World) -> None:
    rated = (await all_rated(world.log))[0]
    await world.log.undo_feedback(rated.feedback_ids[0])


async def comment(world: World) -> None:
    rated = (await all_rated(world.log))[0]
    await rate(world.log, rated.completion.id, None, comment="too long")


async def forget(world: World) -> None:
    await world.log.forget("local")
    await world.learner.forget()
    await world.rated(1.0, -1.0)


async def other_version(world: World) -> None:
    number = world.make_version(1).number
    await world.learner.promote(number, "better", force=True)


async def nothing(_: World) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "settings", "words"),
    [
        (undo, {}, "its ratings or rollouts have changed"),
        (comment, {}, "its ratings or rollouts have changed"),
        (forget, {}, "nothing was kept of it"),
        (other_version, {}, "another version is live"),
        (nothing, {"preset": "careful"}, "other settings"),
    ],
)
async def test_what_has_changed_meanwhile_starts_it_over(
    open_world: Open, change: Callable[[World], Awaitable[None]], settings: dict[str, Any], words: str
) -> None:
    world, job = await stopped(open_world)
    await change(world)
    reopened = await open_world(**settings)
    run = await going_on(reopened, job, f"starts over after a stop: {words}")
    assert run.reason.startswith("you asked for it")
    assert not kept(job), "it isn't of these ratings"


async def test_a_retention_reaches_the_job_and_not_the_wish(open_world: Open) -> None:
    world, job = await stopped(open_world)
    await world.learner.drop_erased()
    assert kept(job), "nothing was erased"
    unrated = capture(world.log, [user("Hi?")])
    asked = PolicyReply(
        policy="candidate", prompt_id=unrated, messages=(user("Hi?"),), reply="Hi.", finished=True
    )
    job.write_replies([asked])
    job.teacher.write_text("texts of the engine")
    await world.log.prune(Keep(completions=0))
    await world.learner.drop_erased()
    assert kept(job) and not job.rollouts.exists(), "nobody rated that one"
    await world.log.prune(Keep(completions=0, rated=False))
    await world.learner.drop_erased()
    assert [path.name for path in job.path.iterdir()] == [FILE]


async def test_what_was_erased_before_a_kill_is_gone_after_the_start(open_world: Open) -> None:
    world, job = await stopped(open_world)
    await world.log.forget("local")  # killed before the jobs were reached
    await open_world()
    await until(lambda: not kept(job))


async def test_a_run_whose_ratings_are_gone_ends_and_says_so(open_world: Open) -> None:
    world, job = await stopped(open_world)
    await world.log.undo_all_feedback()
    reopened = await open_world()
    run = await reopened.run_when(lambda run: run.status == "failed", 60)
    assert (run.id, run.reason) == (
        job.path.name, "no rated reply is left to train on: rate some answers good and some bad",
    )  # fmt: skip


async def test_a_pause_holds_a_run_that_started_by_itself(open_world: Open) -> None:
    few = {"schedule": "auto", "min_ratings": 4, "min_good": 2, "min_bad": 2}
    world = await open_world(**few)
    await world.rated(1.0, -1.0, 1.0, -1.0)
    run = await world.run_when(lambda run: run.ended_at is None, 60)
    await world.trainer()
    await world.learner.pause(on=True)
    paused = await open_world(**few)
    await until(lambda: "training is paused" in paused.learner.status()["reason"])
    assert "Then the run that stopped while loading goes on" in paused.learner.status()["reason"]
    await paused.learner.pause(on=False)
    again = await paused.run_when(lambda run: run.ended_at is None, 60)
    assert again.id == run.id


async def test_a_run_that_kills_burnish_again_and_again_fails(open_world: Open) -> None:
    world = await open_world()
    await world.rated(1.0, -1.0)
    crashed = Run(run_id(), time.time(), None, "training", "2 new ratings", None, 2)
    await world.log.start_run(crashed)
    wish = Resumption(options=RunOptions(), by_user=True, reason="2 new ratings", crashes=MAX_CRASHES - 1)
    wish.keep(world.learner.job(crashed.id).path)
    reopened = await open_world()
    run = await reopened.log.run(crashed.id)
    assert (run.status, run.reason) == (
        "failed", f"burnish was killed {MAX_CRASHES} times during this run, at last before its first step",
    )  # fmt: skip
    assert reopened.learner.status()["failures"] == 1
    assert resumption(reopened.learner.job(crashed.id).path) is None


@pytest.mark.parametrize(("state", "crashed"), [("rejected", True), ("candidate", False)])
async def test_a_verdict_from_before_the_stop_holds(open_world: Open, state: State, crashed: bool) -> None:
    world = await open_world()
    number = world.make_version(1).number
    world.registry.record(number, state, "it is gibberish", verdict={"outcome": state})
    words = "stopped while judging; goes on"
    run = Run(run_id(), time.time(), None, "evaluating", "you asked for it", number, 2)
    if not crashed:
        run = replace(run, ended_at=time.time(), status="interrupted", reason=words)
    await world.log.start_run(run)
    wish = Resumption(options=RunOptions(), by_user=True, reason="you asked for it")
    wish.keep(world.learner.job(run.id).path)
    reopened = await open_world()
    run = await reopened.log.run(run.id)
    assert (run.status, run.reason) == (state, "it is gibberish")
    assert resumption(reopened.learner.job(run.id).path) is None
    assert reopened.learner.status()["run"] is None


async def test_learning_that_starts_over_drops_it(open_world: Open) -> None:
    world, job = await stopped(open_world)
    async with world.learner.stopped("a new start"):
        pass
    run = await world.log.run(job.path.name)
    assert (run.status, run.reason) == ("interrupted", "stopped while loading; a new start")
    assert resumption(job.path) is None


async def test_another_wish_takes_its_place(open_world: Open) -> None:
    _, job = await stopped(open_world)
    (job.path / FILE).write_text((job.path / FILE).read_text().replace('"by_user":true', '"by_user":false'))
    reopened = await open_world()
    other = await reopened.learner.train_now(RunOptions(refresh=True))
    assert other != job.path.name
    assert (await reopened.log.run(job.path.name)).reason.endswith("; another run was asked for")


async def test_commands_say_that_it_was_stopped(tmp_path: Path, weights: Path) -> None:
    data, reason = tmp_path / "data", "stopped at step 2 of 36; goes on when burnish runs again"
    data.mkdir()
    waits = Run(run_id(), time.time(), time.time(), "interrupted", reason, None, 2)
    with closing(Log.open(data / "burnish.db")) as log:
        await log.start_run(waits)
    wish = Resumption(options=RunOptions(), by_user=False, reason="2 new ratings")
    wish.keep(data / "jobs" / waits.id)
    async with rated(tmp_path, weights) as burnish:  # by hand only, so it waits
        url = str(burnish.http.base_url)
        shown = {
            words: (await asyncio.to_thread(call, *words, url=url)).stdout
            for words in (("adapters", "list"), ("watch",), ("status",))
        }
    assert f"the last run was {reason}" in shown["adapters", "list"]
    assert f"the last run was {reason}" in shown["watch",]
    assert "Then the run that stopped at step 2 of 36 goes on" in " ".join(shown["status",].split())
    assert not any("fail" in text for text in shown.values())
