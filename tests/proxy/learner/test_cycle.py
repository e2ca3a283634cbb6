"""The whole cycle on real parts: real answers, real ratings, the real trainer, gate and swap."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bench.learning.questions import BRIEFLY, PROMPTS
from burnish.adapters.questions import QUESTIONS
from burnish.proxy.learner.trainer import progress
from tests.proxy.learner.conftest import Open, World

pytestmark = pytest.mark.slow

SHORT = 130
"""Characters: the simulated user's idea of brevity."""


def conversation(question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": BRIEFLY}, {"role": "user", "content": question}]


async def rate_answers(world: World, questions: Sequence[str], *, only: float | None = None) -> None:
    """Ask, four at a time, and rate: short is good. ``only`` rates everything the same."""
    waiting = list(enumerate(questions))

    async def work() -> None:
        while waiting:
            number, question = waiting.pop()
            text, completion = await world.ask(
                conversation(question), max_tokens=64, temperature=0.8, top_p=0.95, seed=number
            )
            await world.rate(completion, only or (1.0 if len(text) < SHORT else -1.0))

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work())


@pytest.mark.timeout(900)
async def test_ratings_become_a_live_version_that_answers_as_the_user_likes(open_world: Open) -> None:
    world = await open_world(schedule="auto", min_ratings=40, min_good=8, min_bad=4)
    questions = PROMPTS[:40]
    await rate_answers(world, questions)
    counts = await world.log.counts()
    assert counts["ratings"] == 40
    assert counts["good"] >= 8 <= counts["bad"], "the questions must divide the answers"

    async with asyncio.timeout(60):
        while not (runs := await world.log.runs()):
            await asyncio.sleep(0.2)
    assert "40 new ratings" in runs[0].reason, "it started by itself"
    assert world.learner.status()["state"] == "training"
    run = await world.ended(runs[0].id, 800)

    # Sampled answers differ from run to run: forty ratings nearly always prove it, but not always. What the gate
    # should say of which evidence is tested with the gate; here, that what it said is what was done.
    verdict = next(e.details["verdict"] for e in world.registry.events(1) if "verdict" in e.details)
    facts = next(check for check in verdict["checks"] if check["name"] == "facts")
    assert "of 60 right" in facts["text"], "the engine was asked, and the small model knows some"
    assert 3 <= len(verdict["examples"]) <= 5
    taught = {s.messages[-1]["content"] for s in world.learner.job(run.id).samples() if not s.held_out}
    shown = {each["prompt"] for each in verdict["examples"]}
    assert shown <= {*questions, *QUESTIONS} - taught, "it was judged by what it had not learnt from"
    judged = {"passed": "live", "undecided": "candidate", "rejected": "rejected"}
    assert run.status == judged[verdict["outcome"]], run.reason
    assert world.registry.live() == (1 if run.status == "live" else 0)
    if run.status != "live":
        await world.learner.promote(1, "the user believes in it", force=True)
    assert world.registry.live() == run.version == 1
    assert world.swap.route.live
    assert world.swap.route.live.version == 1
    version = world.registry.get(1)
    rated = {each.feedback_ids[0] for each in await world.log.rated()}
    learnt = set(version.manifest.feedback_ids)
    assert learnt < rated, "some were held out"
    assert len(rated - learnt) >= 6
    last = progress(world.learner.job(run.id))
    assert last
    assert 1 < last["step"] <= last["steps"]

    async with asyncio.timeout(30):  # it counts anew after a promotion, in its own time
        while (ready := world.learner.status()["ready"])["good"] + ready["bad"] != len(rated - learnt):
            await asyncio.sleep(0.1)
    assert ready["new"] == 0
    assert world.learner.status()["state"] == "idle"
    before = after = 0
    for number, question in enumerate(PROMPTS[40:52]):
        text, _ = await world.ask(conversation(question), max_tokens=64, temperature=0.8, seed=number)
        after += len(text) < SHORT
    await world.learner.rollback(None, "to compare")
    for number, question in enumerate(PROMPTS[40:52]):
        text, _ = await world.ask(conversation(question), max_tokens=64, temperature=0.8, seed=number)
        before += len(text) < SHORT
    assert after > before


@pytest.mark.timeout(600)
async def test_bad_ratings_alone_never_reach_the_users(open_world: Open) -> None:
    world = await open_world(schedule="auto", min_ratings=2, min_good=1, min_bad=1, epochs=1)
    await rate_answers(world, PROMPTS[:8], only=-1.0)
    await asyncio.sleep(2.5)
    assert await world.log.runs() == []
    assert "all 8 ready ratings are bad" in world.learner.status()["reason"]
    run_id = await world.learner.train_now(force_one_sided=True)
    run = await world.ended(run_id, 500)
    assert run.status in ("candidate", "rejected"), run.reason
    assert world.registry.live() == 0
    assert world.swap.route.live
    assert world.swap.route.live.version == 0
    assert world.registry.get(1).state == run.status
    assert "held out" in run.reason or run.status == "rejected"
    await world.swap.settled()
    assert list(await world.host.served()) == [0], "the candidate was unloaded"


@pytest.mark.timeout(300)
async def test_a_killed_trainer_leaves_the_base_live_and_the_ratings_ready(open_world: Open) -> None:
    world = await open_world(min_ratings=4)
    await rate_answers(world, PROMPTS[:4], only=1.0)
    await rate_answers(world, PROMPTS[4:8], only=-1.0)
    run_id = await world.learner.train_now()
    (await world.trainer()).kill()
    run = await world.ended(run_id, 30)
    assert run.status == "failed"
    assert "SIGKILL" in run.reason
    assert world.registry.live() == 0
    assert world.registry.versions() == []
    await asyncio.sleep(0.1)
    status = world.learner.status()
    assert status["state"] == "idle"
    assert status["ready"] == {"new": 8, "good": 4, "bad": 4, "neutral": 0, "comments": 0, "pairs": 0}
    assert status["failures"] == 1
    assert (await world.ask(conversation("Still there?"), max_tokens=4))[0]

    second = await world.learner.train_now()
    child = await world.trainer()
    reopened = await open_world(min_ratings=4)  # burnish stops while it trains, and starts again
    assert not child.is_running()
    interrupted = await reopened.log.run(second)
    assert interrupted.status == "interrupted"
    assert interrupted.ended_at
    assert (await reopened.learner.dry_run())["ready"]["new"] == 8
