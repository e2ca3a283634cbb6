"""What a run would learn, from where on, and why: the whole application before the double of an engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.registry import Registry
from burnish.training.job import JobDirectory
from tests.learner.test_foreign_engine import world
from tests.support.inprocess import refusal
from tests.support.lora import random_lora, register, write_peft
from tests.support.patience import within
from tests.support.upstream import completion, reply, upstream
from tests.support.vllm_double import Engine


@dataclass
class Rated:
    http: httpx.AsyncClient
    data: Path
    digest: str

    async def rate(self, *ratings: str, model: str = "default") -> list[str]:
        """Ask something new for each rating, rate the answer, and return the ratings' ids."""
        made = []
        for rating in ratings:
            logged = (await self.http.get("/burnish/completions")).json()["data"]
            question = {"role": "user", "content": f"Question {len(logged)}, rated {rating}?"}
            body = {"model": model, "messages": [question]}
            answer = await self.http.post("/v1/chat/completions", json=body)
            name = answer.headers["x-burnish-completion-id"]
            target = {"completion_id": name, "rating": rating.split(",")[0]}
            made.append((await self.http.post("/v1/feedback", json=target)).json()["id"])
        return made

    async def version(self, parent: int, learnt: list[str]) -> int:
        """Make a version that has learnt ratings live."""
        registry = Registry(self.data / "adapters")
        files = write_peft(self.data / f"made-{parent}", random_lora(parent))
        trained: dict[str, Any] = {"run_id": f"run_{parent}", "feedback_ids": learnt, "objective": "mis_po"}
        made = register(registry, files, self.digest, parent=parent, **trained)
        registry.record(made.number, "candidate", "judged", awaits="the test")
        answer = await self.http.post(f"/burnish/adapters/{made.number}/promote", json={})
        assert answer.json()["live"] == made.number, answer.text
        return made.number

    async def plan(self, **wanted: bool) -> dict[str, Any]:
        answer = await self.http.post("/burnish/train", json={"dry_run": True, **wanted})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def job(self, **wanted: bool) -> JobDirectory:
        """Start a run, which fails because the weights are no model, and return its job."""
        run_id = (await self.http.post("/burnish/train", json=wanted)).json()["run_id"]
        async with asyncio.timeout(within(240)):
            while not (run := (await self.http.get(f"/burnish/runs/{run_id}")).json())["ended_at"]:
                await asyncio.sleep(0.1)
        assert (run["status"], run["result"]) == ("failed", None)
        return JobDirectory(self.data / "jobs" / run_id)


@asynccontextmanager
async def rated(
    tmp_path: Path, weights: Path, engine: Engine | None = None, **settings: Any
) -> AsyncIterator[Rated]:
    """Burnish before the double of an engine; unless said otherwise, a run starts only by hand."""
    async with world(tmp_path, engine or Engine(), weights, **({"schedule": "manual"} | settings)) as http:
        yield Rated(http, tmp_path / "data", weights_digest(weights))


@pytest.fixture
async def burnish(tmp_path: Path, weights: Path) -> AsyncIterator[Rated]:
    async with rated(tmp_path, weights) as burnish:
        yield burnish


async def test_what_was_learnt_is_gone_over_again_beside_what_is_new(burnish: Rated) -> None:
    old = await burnish.rate(*["good", "bad", "bad", "bad"] * 2)
    await burnish.version(0, old)
    await burnish.rate("good", "bad", "bad", "bad")
    plan = await burnish.plan()
    assert (plan["parent"], plan["trains_on"], plan["replayed"]) == (1, {"good": 1, "bad": 3}, 2)
    samples = (await burnish.job()).samples()
    again = [sample for sample in samples if sample.replayed]
    assert sorted(sample.reward for sample in again) == [-1, 1], "balanced, though most are bad"
    assert [sample.feedback_ids[0] for sample in again] == [old[4], old[7]], "the latest ones"
    assert [sample.behaviour_version for sample in samples] == [1] * 4 + [0] * 2
    assert not any(sample.held_out for sample in again)


async def test_old_versions_lose_their_weights_and_nothing_else(tmp_path: Path, weights: Path) -> None:
    async with rated(tmp_path, weights, replay=0) as burnish:
        old = await burnish.rate("good", "bad")
        await burnish.version(0, old)
        await burnish.rate("bad")  # an answer of the first version's
        for parent in (1, 2):
            await burnish.version(parent, [])
        await burnish.rate("good", "bad")
        assert (await burnish.plan())["replayed"] == 0
        assert [sample.behaviour_version for sample in (await burnish.job()).samples()] == [1, 3, 3]
    async with rated(tmp_path, weights, replay=0, keep_versions=1) as burnish:
        listed = (await burnish.http.get("/burnish/adapters")).json()
        assert [each["state"] for each in listed["adapters"]] == ["pruned", "retired", "live"]
        assert (listed["live"], listed["previous"]) == (3, 2)
        samples = (await burnish.job()).samples()
        assert [sample.behaviour_version for sample in samples] == [None, 3, 3], "as if another had said it"
        feedback = {name for sample in samples for name in sample.feedback_ids}
        assert not {*old} & feedback, "learnt all the same"
        export = {"format": "gguf", "path": str(tmp_path / "v1.gguf")}
        for path, body in (("1/promote", {}), ("1/export", export), ("rollback", {"to": 1})):
            words = await refusal(burnish.http, f"/burnish/adapters/{path}", body)
            assert "v1 no longer has weights: only the latest 1" in words


async def test_a_refresh_learns_everything_anew_and_is_compared_with_what_is_live(burnish: Rated) -> None:
    await burnish.version(0, await burnish.rate("good", "bad", "bad"))
    await burnish.version(1, await burnish.rate("good"))
    assert "no rating is ready" in await refusal(burnish.http, "/burnish/train", {})
    plan = await burnish.plan(refresh=True)
    assert (plan["would_train"], plan["parent"], plan["replayed"]) == (True, 0, 0)
    assert plan["trains_on"] == {"good": 2, "bad": 2}
    assert "all ratings again" in plan["note"]
    job = await burnish.job(refresh=True)
    spec, samples = job.spec(), job.samples()
    assert spec.parent_adapter is None
    assert spec.incumbent_adapter == str((burnish.data / "adapters" / "v0002").absolute())
    assert [sample.behaviour_version for sample in samples] == [0, 0, 0, 1]
    assert not any(sample.replayed for sample in samples)


async def test_the_learning_rate_follows_the_width_or_the_user(tmp_path: Path, weights: Path) -> None:
    (weights / "model.safetensors").unlink()
    header = json.dumps({"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(64)
    (weights / "model.safetensors").write_bytes(content)
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2}
    config |= {"num_local_experts": 8, "num_experts_per_tok": 2}
    (weights / "config.json").write_text(json.dumps(config))
    async with rated(tmp_path, weights) as burnish:
        await burnish.rate("good", "bad")
        plan = await burnish.plan()
        (weights / "config.json").unlink()  # the trainer sees at once that it can't work
        spec = (await burnish.job()).spec()
    (weights / "config.json").write_text(json.dumps(config))
    rate = 4e-4 * (576 / 4096) ** 0.78 * (8 / 2) ** -0.25
    assert plan["hyperparameters"]["learning_rate"] == pytest.approx(rate)
    assert "0.22 of that for a model 576 wide, this one is 4096" in plan["note"]
    assert "a mixture of 8 experts, 2 for each token" in plan["note"]
    assert (spec.size.hidden, spec.size.layers, spec.size.parameters, spec.size.experts) == (4096, 2, 16, 8)
    assert "; ".join(spec.notes) == plan["note"]
    async with rated(tmp_path, weights, learning_rate=1e-3) as burnish:
        assert (await burnish.plan())["hyperparameters"]["learning_rate"] == 1e-3


async def test_ratings_of_no_answer_are_counted_in_the_plan_and_in_the_status(burnish: Rated) -> None:
    await burnish.rate("good", "bad")
    body = {"model": "smollm2@v9", "messages": [{"role": "user", "content": "Hi?"}]}
    refused = await burnish.http.post("/v1/chat/completions", json=body)
    target = {"completion_id": refused.headers["x-burnish-completion-id"], "rating": "bad"}
    assert (await burnish.http.post("/v1/feedback", json=target)).status_code == 201
    expected = {"the answer was cut off or never came": 1}
    assert (await burnish.plan())["left_out"] == expected
    status = (await burnish.http.get("/burnish/status")).json()
    assert status["learner"]["left_out"] == expected
    assert (await burnish.job()).spec().left_out == expected


@pytest.mark.parametrize("scrub", [True, False])
async def test_log_scrub_leaves_out_what_holds_a_key(tmp_path: Path, weights: Path, scrub: bool) -> None:
    async with rated(tmp_path, weights, flags={"log": {"scrub": scrub}}) as burnish:
        await burnish.rate("good", "bad", f"good, with {'gh' + 'p_'}abcdefghijklmnopqrstuvwxyz0123456789")
        plan = await burnish.plan()
        status = (await burnish.http.get("/burnish/status")).json()["learner"]
    expected = {"the exchange or the feedback holds a key or a token (log.scrub)": 1} if scrub else {}
    assert (plan["left_out"], status["left_out"]) == (expected, expected)
    assert plan["trains_on"] == {"good": 1 if scrub else 2, "bad": 1}


@pytest.mark.parametrize("teaches", [True, False])
async def test_a_further_upstream_teaches_off_policy(tmp_path: Path, weights: Path, teaches: bool) -> None:
    async with upstream(reply(completion("Rain."))) as cloud:
        table = {"url": cloud.url, "models": ["cloud-1"], "teaches": teaches}
        async with rated(tmp_path, weights, flags={"upstreams": {"cloud": table}}) as burnish:
            await burnish.rate("good", "bad")
            await burnish.rate("good", "good", model="cloud-1")
            plan = await burnish.plan()
            samples = (await burnish.job()).samples()
            status = (await burnish.http.get("/burnish/status")).json()["learner"]
    assert plan["trains_on"] == {"good": 3 if teaches else 1, "bad": 1}
    assert plan["left_out"] == status["left_out"]
    assert list(plan["left_out"].values()) == ([] if teaches else [2])
    assert [each.behaviour_version for each in samples] == [0, 0, *([None, None] if teaches else [])]


async def test_a_run_goes_on_where_one_stopped_that_was_to_do_the_same(burnish: Rated) -> None:
    await burnish.rate("good", "bad")
    first = await burnish.job()
    first.checkpoint.mkdir()
    (first.checkpoint / "progress.json").write_text("{}")
    second = await burnish.job()
    assert second.inputs() == first.inputs()
    assert (second.checkpoint / "progress.json").exists()
    assert not first.checkpoint.exists()
    await burnish.rate("good")
    third = await burnish.job()
    assert third.inputs() != second.inputs()
    assert not third.checkpoint.exists()
    assert second.checkpoint.exists()


# Steering from the chat


def steered(tmp_path: Path, weights: Path, *owners: str) -> AbstractAsyncContextManager[Rated]:
    train: dict[str, Any] = {"schedule": "auto", "min_ratings": 2, "min_good": 1, "min_bad": 1}
    return rated(tmp_path, weights, flags={"owners": owners}, **train)


async def typed(burnish: Rated, text: str, who: str | None = "ann") -> str:
    body: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": text}]}
    headers = {"x-burnish-user": who} if who else {}
    answer = await burnish.http.post("/v1/chat/completions", json=body, headers=headers)
    return str(answer.json()["choices"][0]["message"]["content"])


async def test_an_owner_rolls_back_and_trains_from_the_chat(tmp_path: Path, weights: Path) -> None:
    async with steered(tmp_path, weights, "ann", "local") as burnish:
        off = await typed(burnish, "/rl off")
        assert off.startswith("burnish: /rl off: training no longer starts by itself")
        for parent in (0, 1):
            await burnish.version(parent, [])
        assert await typed(burnish, "/rl rollback") == "burnish: /rl rollback: v1 is live again"
        base = "burnish: /rl rollback: the base model is live again"
        assert await typed(burnish, "/rl rollback base") == base
        assert "burnish: /rl rollback: the base model is live" in await typed(burnish, "/rl rollback")
        nameless = await typed(burnish, "/rl rollback v1", None)
        assert nameless == "burnish: /rl rollback: v1 is live again"
        assert await typed(burnish, "/rl rollback v2") == "burnish: /rl rollback: v2 is live again"
        assert "burnish: /rl rollback: there is no version 7" in await typed(burnish, "/rl rollback 7")
        assert "/rl train: no run was started: no rating is ready" in await typed(burnish, "/rl train")
        await burnish.rate("good", "bad")
        assert "burnish: /rl train: training has started (run_" in await typed(burnish, "/rl train")
        assert "/rl rollback [version | base]" in await typed(burnish, "/rl help")
        assert "burnish: /rl promote: no version waits to be promoted" in await typed(burnish, "/rl promote")
        events = (await burnish.http.get("/burnish/adapters/2")).json()["events"]
        assert events[-1]["reason"] == "rolled back in the chat by ann"


@pytest.mark.parametrize("owners", [(), ("ann",)])
async def test_others_do_not(tmp_path: Path, weights: Path, owners: tuple[str, ...]) -> None:
    async with steered(tmp_path, weights, *owners) as burnish:
        await burnish.version(0, [])
        for who in ("bob", None):
            for command in ("train", "promote", "rollback base", "off", "on"):
                assert "Only owners may use /rl" in await typed(burnish, f"/rl {command}", who)
            assert "/rl train" not in await typed(burnish, "/rl help", who)
        status = (await burnish.http.get("/burnish/status")).json()
        assert (status["live"]["version"], status["learner"]["state"]) == (1, "idle")
        assert (await burnish.http.get("/burnish/runs")).json()["runs"] == []


async def test_pausing_outlives_a_restart(tmp_path: Path, weights: Path) -> None:
    async with steered(tmp_path, weights, "ann") as burnish:
        await typed(burnish, "/rl off")
        await burnish.rate("good", "bad")
    async with steered(tmp_path, weights, "ann") as burnish:
        learner = (await burnish.http.get("/burnish/status")).json()["learner"]
        assert learner["state"] == "paused"
        assert "training is paused: `burnish resume` goes on" in (await burnish.plan())["by_itself"]
        assert (await burnish.plan())["would_train"], "who asks for a run gets one"
        assert "training: paused" in await typed(burnish, "/rl status")
        resumed = (await burnish.http.post("/burnish/resume")).json()
        assert (resumed["state"] == "paused", "paused" in resumed["reason"]) == (False, False)
    async with steered(tmp_path, weights, "ann") as burnish:
        assert (await burnish.http.get("/burnish/status")).json()["learner"]["state"] != "paused"


async def test_rlhf_is_a_warm_start_a_reward_model_and_a_policy_gradient_against_it(burnish: Rated) -> None:
    await burnish.rate(*["good", "bad"] * 4)
    plan = await burnish.plan(rlhf=True)
    assert plan["objective"] == "ppo"
    chosen = plan["hyperparameters"]
    assert (chosen["warm_start"], chosen["rewards"], chosen["token_band"]) == (True, "model", [0.8, 1.2])
    assert "imitates demonstrations, then learns by ppo from what a reward model likes" in plan["note"]
    run_id = (await burnish.job(rlhf=True)).path.name
    run = (await burnish.http.get(f"/burnish/runs/{run_id}")).json()
    assert "a reward model needs 32 rated answers" in run["reason"], "said before a model is loaded"


async def test_rlhf_keeps_the_policy_gradient_and_values_of_the_user(tmp_path: Path, weights: Path) -> None:
    own: dict[str, Any] = {"objective": "gspo", "advanced": {"rewards": "ratings", "rounds": 7}}
    async with rated(tmp_path, weights, **own) as burnish:
        await burnish.rate("good", "bad")
        plan = await burnish.plan(rlhf=True)
        chosen = plan["hyperparameters"]
        assert (plan["objective"], chosen["rewards"], chosen["rounds"]) == ("gspo", "ratings", 7)
        assert (await burnish.plan())["hyperparameters"]["warm_start"] is False
