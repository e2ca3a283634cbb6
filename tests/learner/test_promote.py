"""With ``train.promote = "manual"`` a version that passed the gate waits for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.learning.questions import PROMPTS
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.registry import PASSED_AGAINST
from burnish.app.chat import chat_actions, summary
from burnish.gate import Evidence, Verdict
from tests.learner.conftest import Open, World, no_reset
from tests.learner.taught import RATED, every_second, rate_answers
from tests.learner.test_learner import candidate, serves

PASSED = Verdict(outcome="passed", reason="You would like more of its replies.", checks=())
MORE = PROMPTS[len(RATED) : len(RATED) + 2]
NO_COUNTS = {"ratings": 0, "good": 0, "bad": 0}


def passed(world: World, seed: int, against: int) -> AdapterVersion:
    version = world.make_version(seed)
    record_pass(world, version.number, against)
    return version


def record_pass(world: World, number: int, against: int) -> None:
    details: dict[str, Any] = {"verdict": PASSED.model_dump(), PASSED_AGAINST: against}
    world.registry.record(number, "candidate", "better than what is live: it is shorter.", **details)


async def promote(world: World, path: str = "promote") -> dict[str, Any]:
    answer = await world.http.post(f"/burnish/adapters/{path}", json={})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def waiting(world: World) -> int | None:
    """What all that show it say."""
    listed = (await world.http.get("/burnish/adapters")).json()["waiting"]
    status = world.learner.status()
    assert listed == (status["waiting"] and status["waiting"]["version"])
    line = summary(NO_COUNTS, None, status, {"on": False})
    assert ("waits for /rl promote" in line) == (listed is not None)
    return int(listed) if listed else None


async def test_a_version_that_passed_waits_over_restarts_until_it_is_promoted(open_world: Open) -> None:
    world = await open_world(promote="manual")
    number = passed(world, 1, against=0).number
    world = await open_world(promote="manual")
    assert await waiting(world) == number
    assert await serves(world, 0)
    assert await promote(world) == {"live": number, "previous": 0, "note": None}
    assert await serves(world, number)
    assert await waiting(world) is None
    assert "no version waits to be promoted" in await world.refused("/burnish/adapters/promote", {})


async def test_an_owner_promotes_from_the_chat_and_hears_what(open_world: Open) -> None:
    world = await open_world(promote="manual")
    typed = chat_actions(world.learner, no_reset, "ann")["promote"]
    passed(world, 1, against=0)
    assert await typed("") == "v1 is live now, better than what is live: it is shorter"
    assert world.registry.events(1)[-1].reason == "promoted in the chat by ann"
    candidate(world, 2)
    assert await typed("v2") == "v2 is live now"


async def test_a_newer_version_that_passes_waits_instead(open_world: Open) -> None:
    world = await open_world(promote="manual")
    older, newer = passed(world, 1, against=0).number, passed(world, 2, against=0).number
    assert await waiting(world) == newer
    candidate(world, 3)
    assert await waiting(world) == newer, "the gate was undecided about the one after it"
    assert (await promote(world, f"{older}/promote"))["note"] is None, "the older one is there all the same"
    assert await waiting(world) is None, "nobody has compared the newer one with it"


async def test_what_was_judged_against_another_version_does_not_wait(open_world: Open) -> None:
    world = await open_world(promote="manual")
    first, other = passed(world, 1, against=0).number, candidate(world, 2)
    await promote(world, f"{other}/promote")
    assert await waiting(world) is None
    refusal = await world.refused("/burnish/adapters/promote", {})
    assert "v1 is a candidate, but not known to be better" in refusal
    assert "burnish adapters promote v1" in refusal
    await world.learner.rollback(0, "test")
    assert await waiting(world) == first, "what it was compared with is live again"
    await promote(world, f"{other}/promote")
    note = (await promote(world, f"{first}/promote"))["note"]
    assert note == "Nobody has compared it with v2, which it replaced"


async def test_a_version_that_waits_keeps_its_weights(open_world: Open) -> None:
    world = await open_world(promote="manual", keep_versions=1)
    number = passed(world, 1, against=0).number
    for seed in range(2, 5):
        world.registry.record(world.make_version(seed).number, "rejected", "gibberish")
    assert await world.swap.prune(keep=1) == [2, 3]
    await promote(world)
    assert await serves(world, number)


async def test_what_waits_for_another_base_model_is_not_offered(open_world: Open) -> None:
    world = await open_world(promote="manual")
    passed(world, 1, against=0)
    world.host.base_digest = "sha256:another"
    assert await waiting(world) is None


async def test_a_damaged_version_does_not_hide_the_status(open_world: Open) -> None:
    world = await open_world(promote="manual")
    (passed(world, 1, against=0).path / "manifest.json").write_text("{")
    assert await waiting(world) is None


@pytest.mark.slow
async def test_a_version_waits_until_another_passes(
    open_world: Open, tiny_model: Path, unjudged: Path
) -> None:
    def lets_pass(evidence: Evidence) -> Verdict:
        return PASSED

    world = await open_world(model=tiny_model, copy=unjudged, promote="manual", epochs=1, gate=lets_pass)
    await world.run_when(lambda run: run.status == "candidate", 200)
    assert await waiting(world) == 1
    plan = await world.learner.dry_run()
    assert plan["ready"]["new"] == 0
    assert plan["by_itself"] == "the schedule is manual: start a run with `burnish train`"
    count = sum(plan["trains_on"].values()) + plan["held_out"]
    assert (plan["parent"], count) == (0, len(RATED)), "the live version hasn't learnt them"
    await rate_answers(world, MORE, every_second)
    second = await world.ended(await world.learner.train_now(), 200)
    assert (second.status, second.version) == ("candidate", 2)
    assert "It waits for you: `burnish adapters promote 2` or `/rl promote`" in second.reason
    assert await waiting(world) == 2
    assert world.registry.live() == 0
    assert world.registry.get(2).manifest.parent == 0
    assert world.registry.get(1).reason == "v2 passed the gate later, and waits in its place"
    await promote(world)
    assert world.registry.get(2).reason == "promoted by hand"
    ready = (await world.learner.dry_run())["ready"]
    assert ready["good"] + ready["bad"] == len(world.registry.get(2).manifest.held_out)
