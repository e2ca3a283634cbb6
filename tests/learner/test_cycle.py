"""The whole cycle on real parts: real answers, real ratings, the real trainer, gate and swap.

The ordinary tests use a tiny model that knows nothing. The long form teaches the small model and sees that it learns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from bench.learning.questions import BRIEFLY, PROMPTS
from burnish.adapters import examples
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.manifest import Probe
from burnish.adapters.registry import Registry
from burnish.gate.questions import QUESTIONS
from burnish.learner.plan import RunOptions
from burnish.learner.sampling import is_ours
from burnish.learner.trainer import latest_step
from burnish.proxy.log import Log
from burnish.proxy.log.runs import Run
from burnish.training.job import JobDirectory, UnratedPrompt
from tests.learner.conftest import Open, World
from tests.learner.taught import RATED, conversation, every_second, rate_answers
from tests.proxy.log.exchanges import all_rated, capture, until, user

pytestmark = pytest.mark.slow

SHORT = 130
"""Characters: the simulated user's idea of brevity."""


def brief(_: int, text: str) -> bool:
    return len(text) < SHORT


async def check_run(world: World, run: Run, questions: Sequence[str]) -> None:
    """A run left what it should, and its version goes live, if need be by hand."""
    await check_verdict(world, run, questions)
    # Sampled answers differ from run to run: forty ratings nearly always prove it, but not always.
    if run.status != "live":
        await world.learner.promote(1, "the user believes in it", force=True)
    await check_live(world, run)


async def check_verdict(world: World, run: Run, questions: Sequence[str]) -> None:
    """What the gate found is what was done, whichever that was."""
    verdict = next(e.details["verdict"] for e in world.registry.events(1) if "verdict" in e.details)
    assert any(check["name"] == "facts" for check in verdict["checks"]), "the engine was asked for facts"
    taught = {s.messages[-1]["content"] for s in world.learner.job(run.id).samples() if not s.held_out}
    shown = {each["prompt"] for each in examples.of(world.registry.root, 1)}
    assert 3 <= len(shown) <= 5
    assert shown <= {*questions, *QUESTIONS} - taught, "it was judged by what it had not learnt from"
    pairs = await world.log.open_duels({0, 1}, 100)
    assert len(pairs) > len(shown)
    assert {frozenset((pair.left_version, pair.right_version)) for pair in pairs} == {frozenset((0, 1))}
    assert all(pair.sampled and pair.sampled.messages[0]["content"] == BRIEFLY for pair in pairs)
    quoted = {pair.quotes for pair in pairs if pair.quotes}
    assert await world.log.existing(quoted) == quoted, "also those with only the system prompt of a user"
    assert len(quoted) == len({pair.quotes for pair in pairs}), "each quotes a user"
    judged = {"passed": "live", "undecided": "candidate", "rejected": "rejected"}
    assert run.status == judged[verdict["outcome"]], run.reason
    assert world.registry.live() == (1 if run.status == "live" else 0)
    await check_shown(world, run)


async def check_shown(world: World, run: Run) -> None:
    """The API tells how the run went, who taught the version, and what it changed."""
    curve = (await world.http.get(f"/burnish/runs/{run.id}")).json()["curve"]
    steps = world.learner.job(run.id).result().steps
    assert (len(curve["step"]), curve["step"][-1]) == (steps, steps)
    assert await world.log.curve(run.id) == curve, "it is kept for when the job is gone"
    version = (await world.http.get("/burnish/adapters/1")).json()
    (teacher,) = version["teachers"]
    assert teacher["good"] + teacher["bad"] == version["ratings"]
    assert {(each["before"]["version"], each["after"]["version"]) for each in version["samples"]} == {(0, 1)}
    assert version["verdict"]["headline"]
    (today,) = (await world.http.get("/burnish/adapters/traffic", params={"limit": 1})).json()["days"]
    assert today["answers"]["0"] == (await world.log.counts())["completions"]


async def check_live(world: World, run: Run) -> None:
    """The version is served, and what it has learnt is no longer ready."""
    assert world.registry.live() == run.version == world.swap.route.live.version == 1
    rated = {each.feedback_ids[0] for each in await all_rated(world.log)}
    manifest = world.registry.get(1).manifest
    learnt = set(manifest.feedback_ids)
    assert learnt < rated, "some were held out"
    assert set(manifest.held_out) == rated - learnt
    assert manifest.unlearnt == world.learner.job(run.id).result().unlearnt
    last = latest_step(world.learner.job(run.id)) or {}
    assert 1 < last["step"] <= last["steps"]
    # It counts again after a promotion, in its own time.
    count = len(rated - learnt)
    await until(lambda: (ready := world.learner.status()["ready"])["good"] + ready["bad"] == count)
    assert (world.learner.status()["ready"]["new"], world.learner.status()["state"]) == (0, "idle")


async def test_ratings_become_a_judged_version(open_world: Open, tiny_model: Path, taught: Path) -> None:
    world = await open_world(model=tiny_model, copy=taught)
    (run,) = await world.log.runs(2)
    await check_run(world, run, RATED)
    await world.learner.rollback(None, "to compare")
    assert world.registry.live() == 0


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_ratings_become_a_live_version_that_answers_as_the_user_likes(open_world: Open) -> None:
    few = {"min_ratings": 40, "min_good": 8, "min_bad": 4}
    world = await open_world(model=ensure_small_model(), schedule="auto", **few)
    await rate_answers(world, PROMPTS[:40], brief, max_tokens=64)
    counts = await world.log.counts()
    assert counts["good"] >= 8 <= counts["bad"], "the questions must divide the answers"
    run = await world.run_when(lambda _: True, 60)
    assert "40 new ratings" in run.reason, "it started by itself"
    assert world.learner.status()["state"] == "training"
    await check_run(world, await world.ended(run.id, 800), PROMPTS[:40])
    after = await brief_answers(world)
    await world.learner.rollback(None, "to compare")
    assert after > await brief_answers(world)


async def brief_answers(world: World) -> int:
    """How many answers to new questions the user would like."""
    found = 0
    for number, question in enumerate(PROMPTS[40:52]):
        text, _ = await world.ask(conversation(question), max_tokens=64, temperature=0.8, seed=number)
        found += brief(number, text)
    return found


async def test_bad_ratings_alone_never_reach_the_users(open_world: Open, tiny_model: Path) -> None:
    few = {"min_ratings": 2, "min_good": 1, "min_bad": 1}
    world = await open_world(model=tiny_model, schedule="auto", epochs=1, **few)
    await rate_answers(world, PROMPTS[:8], lambda *_: False)
    await until(lambda: world.learner.status()["ready"]["bad"] == 8)
    assert world.learner.status()["reason"].endswith("; or 1 more good rating")
    assert await world.log.runs() == []
    run_id = await world.learner.train_now(RunOptions(force=True))
    run = await world.ended(run_id, 500)
    assert run.status in ("candidate", "rejected"), run.reason
    assert world.registry.live() == world.swap.route.live.version == 0
    assert world.registry.get(1).state == run.status
    await world.swap.settled()
    assert list(await world.host.served()) == [0], "the candidate was unloaded"


@pytest.mark.soak
async def test_the_way_of_rlhf_is_one_run_that_ends_at_the_gate(open_world: Open, tiny_model: Path) -> None:
    world = await open_world(model=tiny_model, epochs=1, batch_size=32, advanced={"rounds": 1})
    for number in range(56):
        good = number % 2 == 0
        text = f"It is thing {number}." if good else f"Thing {number} has a long history, and parts. " * 3
        # Nothing in it could be a topic, of which the tiny model knows nothing.
        made = capture(world.log, [user(f"Why? {number}")], text, adapter_version=0)
        await world.rate(made, 1.0 if good else -1.0)
    run_id = (await world.http.post("/burnish/train", json={"rlhf": True})).json()["run_id"]
    run = await world.ended(run_id, 500)
    assert run.status in ("live", "candidate", "rejected"), run.reason
    manifest = world.registry.get(1).manifest
    assert manifest.objective == "ppo"
    assert manifest.metrics["rewards"].startswith("a reward model of")
    lines = [json.loads(line) for line in world.learner.job(run_id).metrics.read_text().splitlines()]
    assert [line["stage"] for line in lines] == sorted(line["stage"] for line in lines)
    assert {line["stage"] for line in lines} == {0, 1}
    assert all("reward" in line for line in lines if line["stage"] == 1)


async def test_an_interrupted_judgement_starts_anew(open_world: Open, tiny_model: Path, taught: Path) -> None:
    world = await open_world(model=tiny_model, copy=taught)
    (run,) = await world.log.runs(2)
    assert run.status in ("live", "candidate", "rejected"), run.reason
    judged = world.registry.events(1)[1]
    assert judged.details["verdict"]["outcome"] in ("passed", "undecided", "rejected")
    assert world.learner.status()["failures"] == 0
    assert len(world.registry.versions()) == 1, "it wasn't trained again"
    await check_forgotten(world)


async def test_a_version_that_cannot_be_proved_waits_with_the_reason(
    open_world: Open, tiny_model: Path, unjudged: Path
) -> None:
    registry = Registry(unjudged / "adapters")
    registry.set_proof(1, tuple(map(further, registry.get(1).manifest.proof)))
    world = await open_world(model=tiny_model, copy=unjudged)
    await world.run_when(lambda run: run.status == "candidate", 60)
    run = await world.ended(await world.learner.judge_now(1), 60)
    assert run.status == "candidate"
    assert run.reason.startswith("trained, but not judged: the embedded engine")
    assert "can't be shown to apply" in run.reason
    assert run.reason.endswith("Then: `burnish adapters judge 1`")
    assert world.learner.status()["failures"] == 0


async def test_the_gate_does_not_ask_what_the_run_held(
    open_world: Open, tiny_model: Path, unjudged: Path
) -> None:
    with closing(Log.open(unjudged / "burnish.db")) as log:
        held, free = (capture(log, [user(f"Question {number}?")]) for number in range(2))
        await log.counts()
    (folder,) = (unjudged / "jobs").glob("run_*")
    JobDirectory(folder).write_unrated([UnratedPrompt(completion_id=held, messages=(user("Question 0?"),))])
    world = await open_world(model=tiny_model, copy=unjudged)
    await world.run_when(lambda run: run.status != "interrupted" and run.ended_at is not None, 200)
    asked = {reply.prompt_id for reply in world.learner.job(folder.name).replies()}
    assert free in asked
    assert held not in asked


def further(probe: Probe) -> Probe:
    """Return a context after which training moved more than it did, so the engine shows less than half of it."""
    base = {token: logp for token, _, logp in probe.base}
    floor = min(base.values())
    moved = [
        (token, text, logp + 1.5 * (logp - base.get(token, floor))) for token, text, logp in probe.version
    ]
    return probe.model_copy(update={"version": tuple(moved)})


async def check_forgotten(world: World) -> None:
    """An erased user's texts are in no job and in no verdict."""
    assert left(world, RATED), "there is something to erase"
    await world.log.forget("local")
    await world.learner.forget()
    assert not left(world, [*RATED, BRIEFLY])
    shown = (await world.http.get("/burnish/adapters/1")).json()
    assert shown["samples"] == []
    assert shown["verdict"]["checks"]
    assert all(is_ours(each["prompt_id"]) for each in shown["verdict"]["examples"])


def left(world: World, texts: Iterable[str]) -> set[str]:
    """Return the files outside the log that hold one of the texts."""
    files = [path for path in world.data.rglob("*") if path.is_file() and "burnish.db" not in path.name]
    return {path.name for path in files if any(text.encode() in path.read_bytes() for text in texts)}


async def test_a_killed_trainer_leaves_ratings_ready(open_world: Open, tiny_model: Path) -> None:
    world = await open_world(model=tiny_model, min_ratings=4)
    await rate_answers(world, PROMPTS[:8], every_second)
    run_id = await world.learner.train_now()
    (await world.trainer()).kill()
    run = await world.ended(run_id, 30)
    assert run.status == "failed"
    assert "killed, most likely because memory ran out" in run.reason
    assert world.registry.live() == 0
    assert world.registry.versions() == []
    await until(lambda: world.learner.status()["state"] == "idle")
    status = world.learner.status()
    kinds = {"new": 8, "good": 4, "bad": 4, "neutral": 0, "comments": 0, "pairs": 0, "new_comments": 0}
    assert status["ready"] == kinds
    assert status["failures"] == 1
    assert (await world.ask(conversation("Still there?"), max_tokens=4))[0]

    second = await world.learner.train_now()
    child = await world.trainer()
    # burnish stops while it trains, and starts again
    reopened = await open_world(model=tiny_model, min_ratings=4)
    assert not child.is_running()
    await reopened.run_when(lambda run: "goes on after a stop" in run.reason, 60)
    assert (await reopened.log.run(second)).ended_at is None
    assert (await reopened.learner.dry_run())["ready"]["new"] == 8
