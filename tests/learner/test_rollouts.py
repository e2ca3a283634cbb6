"""Training on an agent's rewards: which rollouts a run gets, from which version it goes on, and how it is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from burnish.gate import judge
from burnish.gate.evidence import Attempted
from burnish.learner.rollouts import attempts
from burnish.proxy.log.rollouts import Reward, Rollout
from burnish.training.job import JobDirectory
from tests.gate.test_gate import UNRATED
from tests.learner.test_plan import Rated
from tests.parts.rollouts.test_rollouts import ask, begin, send, shown

Json = dict[str, Any]


async def play(http: httpx.AsyncClient, reward: float, steps: int = 1, **said: Any) -> Json:
    """One whole rollout, rewarded at its end."""
    rollout = await begin(http, **({"task": "cards"} | said))
    for place in range(steps):
        await ask(http, rollout, messages=[{"role": "user", "content": f"{rollout['id']}, card {place}?"}])
    await send(http, rollout, "reward", value=reward)
    await send(http, rollout, "end")
    return rollout


async def job_of(burnish: Rated, **wanted: Any) -> JobDirectory:
    return await burnish.job(**({"rollouts": "cards"} | wanted))


async def test_a_run_gets_the_ended_and_rewarded_rollouts_of_its_task(burnish: Rated) -> None:
    http = burnish.http
    good = await play(http, 1.0, steps=2, group="a")
    bad = await play(http, -1.0, group="a")
    await play(http, 1.0, held_out=True, seed=1)
    await play(http, 1.0, task="chess")
    await begin(http, task="cards")
    unrewarded = await begin(http, task="cards")
    await send(http, unrewarded, "end")
    plan = await http.post("/burnish/train", json={"rollouts": "cards", "dry_run": True})
    facts = [plan.json()[name] for name in ("would_train", "episodes", "objective")]
    assert facts == [True, 2, "rloo"]
    job = await job_of(burnish)
    found = {each.rollout: each for each in job.episodes()}
    assert found.keys() == {good["id"], bad["id"]}
    assert [len(found[each["id"]].steps) for each in (good, bad)] == [2, 1]
    assert (found[good["id"]].reward, found[good["id"]].group) == (1.0, "group a")
    assert job.spec().task == "cards"
    assert (await shown(http, good))["learnt_in"] is None, "the run failed, so the next one learns from it"


async def test_a_run_goes_on_from_the_version_that_played(burnish: Rated) -> None:
    first = await burnish.version(0, [])
    await burnish.version(first, [])
    for reward in (1.0, -1.0, 0.0):
        await play(burnish.http, reward, version=first, group="a")
    await play(burnish.http, 0.5, version="base", group="a")
    spec = (await job_of(burnish)).spec()
    assert (spec.parent_version, spec.incumbent_is_base) == (first, False)
    assert spec.parent_adapter != spec.incumbent_adapter
    assert list(spec.behaviour_adapters) == [first]


async def test_step_rewards_stay_with_their_steps(burnish: Rated) -> None:
    http = burnish.http
    rollout = await begin(http, task="cards")
    for place in range(2):
        await ask(http, rollout, messages=[{"role": "user", "content": f"card {place}?"}])
    await send(http, rollout, "reward", value=0.25, step=1)
    await send(http, rollout, "reward", value=1)
    await send(http, rollout, "end")
    (episode,) = (await job_of(burnish)).episodes()
    assert [each.reward for each in episode.steps] == [0.0, 0.25]
    assert episode.reward == 1.0


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ({"rollouts": "nothing"}, 409, "no rollout of the task 'nothing' is ready"),
        ({"rollouts": "cards", "refresh": True}, 422, "can't be combined"),
        ({"rollouts": 1}, 422, "valid string"),
        ({"objective": "magic"}, 422, "is not an objective"),
    ],
)
async def test_a_run_without_meaning_is_refused(burnish: Rated, said: Json, status: int, words: str) -> None:
    answer = await burnish.http.post("/burnish/train", json=said)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


async def test_only_candidates_are_judged(burnish: Rated) -> None:
    await burnish.version(0, [])
    live = await burnish.http.post("/burnish/adapters/1/judge", json={})
    assert (live.status_code, live.json()["error"]["code"]) == (409, "no_candidate")
    assert (await burnish.http.post("/burnish/adapters/9/judge", json={})).status_code == 404


def held_out(version: int, seed: int | None, reward: float, group: str | None = None) -> Rollout:
    given = (Reward(0.0, reward, None),)
    return Rollout("ro_x", 0.0, 1.0, "t", group, seed, {}, version, True, "local", 1.0, "ended", None, given)


def test_attempts_are_paired_by_seed_and_repeated_ones_are_averaged() -> None:
    found = [
        held_out(2, 1, 1.0), held_out(2, 1, 0.0), held_out(0, 1, -1.0),
        held_out(2, 2, 1.0), held_out(0, None, 1.0), held_out(2, None, 1.0),
    ]  # fmt: skip
    assert attempts(found, 2, 0) == (Attempted(0.5, -1.0),)


def test_the_gate_proves_by_rewards_and_says_when_there_are_too_few() -> None:
    def decided(*pairs: tuple[float, float]) -> tuple[str, str]:
        found = judge(replace(UNRATED, attempts=tuple(Attempted(*each) for each in pairs)))
        return found.outcome, found.reason

    outcome, reason = decided(*[(1.0, -1.0), (0.5, 0.0)] * 10)
    assert (outcome, "more reward than the version before on 20 held-out seeds" in reason) == ("passed", True)
    outcome, reason = decided(*[(-1.0, 1.0), (0.0, 0.5)] * 10)
    assert (outcome, "less reward" in reason) == ("rejected", True)
    assert decided(*[(1.0, -1.0), (-1.0, 1.0)] * 10)[0] == "undecided"
    outcome, reason = decided((1.0, -1.0))
    assert (outcome, "1 were played with both versions, 16 needed" in reason) == ("undecided", True)
