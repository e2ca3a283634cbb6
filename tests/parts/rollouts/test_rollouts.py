"""Rollouts over HTTP: what an agent carries, what it is rewarded, which version answers, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from burnish.adapters.registry import Registry
from tests.learner.test_plan import rated
from tests.support.inprocess import behind, calling, logged
from tests.support.lora import random_lora, register, write_peft
from tests.support.patience import within
from tests.support.tiny_gguf import TINY, random_llama, tiny_lora
from tests.support.upstream import completion, reply

ANSWER = reply(completion("hit"))
ASKED = {"model": "default", "messages": [{"role": "user", "content": "hit or stick?"}]}
Json = dict[str, Any]


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with behind(tmp_path, ANSWER, model="mock") as (http, _):
        yield http


async def begin(http: httpx.AsyncClient, **said: Any) -> Json:
    answer = await http.post("/v1/rollouts", json=said)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def ask(http: httpx.AsyncClient, rollout: Json, **more: Any) -> httpx.Response:
    return await http.post(f"{rollout['base_url']}/chat/completions", json=ASKED | more)


async def shown(http: httpx.AsyncClient, rollout: Json) -> Json:
    return dict((await http.get(f"/v1/rollouts/{rollout['id']}")).json())


async def send(http: httpx.AsyncClient, rollout: Json, what: str, **said: Any) -> httpx.Response:
    return await http.post(f"/v1/rollouts/{rollout['id']}/{what}", json=said)


async def test_the_address_or_the_key_carries_a_rollout_and_the_engine_sees_neither(tmp_path: Path) -> None:
    async with behind(tmp_path, ANSWER, model="mock") as (http, engine):
        by_path, by_key = await begin(http, task="blackjack"), await begin(http)
        assert (first := await ask(http, by_path)).status_code == 200, first.text
        key = {"authorization": f"Bearer {by_key['api_key']}"}
        assert (await http.post("/v1/chat/completions", json=ASKED, headers=key)).status_code == 200
        anthropic = {"x-api-key": by_key["api_key"]}
        asked = {"model": "default", "max_tokens": 9, "messages": ASKED["messages"]}
        assert (await http.post("/v1/messages", json=asked, headers=anthropic)).status_code == 200
        await http.post("/v1/chat/completions", json=ASKED)
        found = [each["rollout"] for each in await logged(http)]
        assert found == [by_path["id"], by_key["id"], by_key["id"], None]
        assert len((await shown(http, by_path))["completions"]) == 1
        assert len((await shown(http, by_key))["completions"]) == 2
        for request in engine.requests:
            assert "/r/" not in request.target
            assert "ro_" not in str(request.headers)


async def test_rewards_add_up_and_a_retry_counts_once(http: httpx.AsyncClient) -> None:
    rollout = await begin(http, seed=7, group="g", tags={"model": "small"})
    await ask(http, rollout)
    await ask(http, rollout)
    card = {"value": 0.5, "step": 1, "reason": "drew a card"}
    assert (await send(http, rollout, "reward", **card)).json()["reward"] == 0.5
    again = await send(http, rollout, "reward", **card)
    assert (again.json()["reward"], again.json()["repeated"]) == (0.5, True)
    other = await send(http, rollout, "reward", value=0.7, step=1)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "rewarded")
    await send(http, rollout, "reward", value=-1)
    ended = (await send(http, rollout, "end")).json()
    assert (ended["status"], ended["reward"]) == ("ended", -0.5)
    given = [(each["value"], each["step"], each["reason"]) for each in ended["rewards"]]
    assert given == [(0.5, 1, "drew a card"), (-1.0, None, None)]
    assert (await send(http, rollout, "end")).json()["ended_at"] == ended["ended_at"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"value": true}', "a reward is a number"),
        (b'{"value": "1"}', "a reward is a number"),
        (b'{"value": 1e9}', "less than or equal to"),
        (b"{}", "Field required"),
        (b'{"value": 1, "step": 1}', "its steps are 0 to 0"),
        (b'{"value": 1, "step": -1}', "greater than or equal to 0"),
        (b'{"value": 1, "points": 2}', "known fields: value, step, reason"),
        (b'{"value": NaN}', "NaN and Infinity aren't JSON"),
        (b'{"value": 1e999}', "infinity"),
        (b"[1]", "must be a JSON object (known fields: value, step, reason)"),
    ],
)
async def test_a_wrong_reward_is_refused_in_words(http: httpx.AsyncClient, body: bytes, words: str) -> None:
    rollout = await begin(http)
    await ask(http, rollout)
    typed = {"content-type": "application/json"}
    answer = await http.post(f"/v1/rollouts/{rollout['id']}/reward", content=body, headers=typed)
    assert answer.status_code == (400 if "infinity" in words.lower() else 422)
    assert words in answer.json()["error"]["message"]
    assert (await shown(http, rollout))["reward"] is None


async def test_after_the_end_nothing_is_asked_or_rewarded(http: httpx.AsyncClient) -> None:
    rollout = await begin(http)
    await send(http, rollout, "end")
    asked, rewarded = await ask(http, rollout), await send(http, rollout, "reward", value=1)
    for answer in (asked, rewarded):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "rollout_ended")
    unknown = rollout | {"base_url": rollout["base_url"].replace(rollout["id"], "ro_" + "0" * 26)}
    assert (await ask(http, unknown)).status_code == 404
    assert (await logged(http)) == []


async def test_a_rollout_that_nobody_ends_times_out(http: httpx.AsyncClient) -> None:
    rollout = await begin(http, time_limit_s=0.2)
    async with asyncio.timeout(within(30)):
        while (await shown(http, rollout))["status"] == "open":
            await asyncio.sleep(0.02)
    assert (await shown(http, rollout))["status"] == "timed_out"
    assert "timed out" in (await ask(http, rollout)).json()["error"]["message"]


async def test_it_is_said_at_once_why_a_rollout_cannot_teach(http: httpx.AsyncClient) -> None:
    ignored, unrewarded = await begin(http), await begin(http)
    assert ignored["note"] is None
    await http.post("/v1/chat/completions", json=ASKED)
    assert "no request carried" in (await send(http, ignored, "reward", value=1)).json()["note"]
    await ask(http, unrewarded)
    assert "without a reward" in (await send(http, unrewarded, "end")).json()["note"]


async def test_listings_filter(http: httpx.AsyncClient) -> None:
    one, two = await begin(http, task="a", group="g"), await begin(http, task="b", held_out=True)
    await send(http, one, "end")

    async def found(query: str) -> list[str]:
        answer = await http.get(f"/v1/rollouts?{query}")
        assert answer.status_code == 200, answer.text
        return [each["id"] for each in answer.json()["data"]]

    assert await found("") == [two["id"], one["id"]]
    assert await found("task=a") == await found("group=g") == await found("status=ended") == [one["id"]]
    assert await found("held_out=true") == [two["id"]]
    assert await found(f"after={two['id']}") == [one["id"]]
    for query in ("status=done", "held_out=1", "color=red"):
        assert (await http.get(f"/v1/rollouts?{query}")).status_code in (400, 422)


async def test_rollouts_of_one_group_that_say_the_same_are_not_mixed_up(http: httpx.AsyncClient) -> None:
    many = await asyncio.gather(*(begin(http, group="g") for _ in range(20)))

    async def play(rollout: Json) -> None:
        messages = list(ASKED["messages"])
        for turn in range(3):
            await ask(http, rollout, messages=messages)
            messages += [{"role": "assistant", "content": "hit"}, {"role": "user", "content": f"turn {turn}"}]

    await asyncio.gather(*map(play, many))
    for each in many:
        assert [step["continues"] for step in (await shown(http, each))["steps"]] == [None, 0, 1]


async def test_a_rewritten_history_makes_a_branch(http: httpx.AsyncClient) -> None:
    rollout = await begin(http)
    first = [*ASKED["messages"], {"role": "assistant", "content": "hit"}]
    await ask(http, rollout)
    await ask(http, rollout, messages=[*first, {"role": "user", "content": "a nine"}])
    await ask(http, rollout, messages=[*first, {"role": "user", "content": "a ten"}])
    assert [step["continues"] for step in (await shown(http, rollout))["steps"]] == [None, 0, 0]


async def test_an_agent_cannot_reward_itself_with_what_it_carries(tmp_path: Path) -> None:
    async with behind(tmp_path, ANSWER, model="mock", api_key="secret", admin_key="other") as (http, _):
        http.headers["x-burnish-key"] = "other"
        rollout = await begin(http)
        agent = httpx.AsyncClient(base_url=http.base_url, trust_env=False, timeout=within(60))
        async with agent:
            agent.headers["authorization"] = f"Bearer {rollout['api_key']}"
            assert (await agent.post("/v1/chat/completions", json=ASKED)).status_code == 200
            refused = await send(agent, rollout, "reward", value=1)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "in_rollout")
            inside = f"{rollout['base_url']}/rollouts/{rollout['id']}/reward"
            assert (await agent.post(inside, json={"value": 1})).status_code == 403
            made_up = {"authorization": "Bearer burnish-rollout-ro_" + "0" * 26 + "-" + "0" * 32}
            assert (await agent.get("/v1/models", headers=made_up)).status_code == 401
            none = {"authorization": ""}
            path = f"/r/{rollout['id']}/v1/chat/completions"
            assert (await agent.post(path, json=ASKED, headers=none)).status_code == 401
        assert (await shown(http, rollout))["reward"] is None


async def test_a_rollout_says_why_an_engine_told_no_tokens(http: httpx.AsyncClient) -> None:
    rollout = await begin(http)
    await ask(http, rollout)
    tokens = (await shown(http, rollout))["tokens"]
    assert tokens["steps"] == 0
    assert sum(tokens["missing"].values()) == 1, tokens


async def test_a_rollout_keeps_the_version_on_which_it_began(tmp_path: Path, weights: Path) -> None:
    async with rated(tmp_path, weights) as burnish:
        http = burnish.http
        first = await burnish.version(0, [])
        rollout = await begin(http)
        assert rollout["version"] == first
        second = await burnish.version(first, [])
        base, latest = await begin(http, version="base"), await begin(http, version="candidate")
        assert (base["version"], latest["version"]) == (0, second)
        for each in (rollout, base, latest):
            assert (await ask(http, each)).status_code == 200
        assert [each["adapter_version"] for each in await logged(http)] == [first, 0, second]
        unknown = await http.post("/v1/rollouts", json={"version": 99})
        assert (unknown.status_code, "burnish has the base model, v1, v2" in unknown.text) == (422, True)


async def test_a_version_loaded_for_rollouts_is_unloaded_after_them(tmp_path: Path, weights: Path) -> None:
    async with rated(tmp_path, weights) as burnish:
        http = burnish.http

        async def is_loaded() -> bool:
            return 1 in (await http.get("/burnish/status")).json()["live"]["resident"]

        adapter = write_peft(tmp_path / "one", random_lora(1))
        register(Registry(burnish.data / "adapters"), adapter, burnish.digest)
        one, two = await begin(http, version=1), await begin(http, version=1)
        await send(http, one, "end")
        assert await is_loaded()
        assert (await ask(http, two)).status_code == 200
        await send(http, two, "end")
        async with asyncio.timeout(within(10)):
            while await is_loaded():
                await asyncio.sleep(0.02)


async def test_a_version_that_the_engine_lost_is_loaded_again_for_its_rollout(tmp_path: Path) -> None:
    model = random_llama(tmp_path / "tiny.gguf")
    adapter = write_peft(tmp_path / "adapter", tiny_lora(TINY, 1))
    async with calling(tmp_path, model=str(model), engine="auto", context=512) as http:
        assert (await http.post("/burnish/adapters", json={"path": str(adapter)})).status_code == 201
        base = {each.pid for each in engines()}
        rollout = await begin(http, version="candidate")
        assert (await ask(http, rollout, max_tokens=2)).status_code == 200
        (engine,) = [each for each in engines() if each.pid not in base]
        engine.kill()
        async with asyncio.timeout(within(60)):
            while (answer := await ask(http, rollout, max_tokens=2)).status_code != 200:
                assert answer.status_code in (502, 503), "clients try that again"
        # A request that found no engine was answered by no version.
        answers = [each for each in await logged(http) if each["status"] == 200]
        assert [each["adapter_version"] for each in answers] == [1, 1]


def engines() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [each for each in children if any("embedded_child" in part for part in each.cmdline())]


async def test_without_versions_only_the_model_as_it_is_can_answer(http: httpx.AsyncClient) -> None:
    assert (await begin(http))["version"] is None
    assert (await begin(http, version="candidate"))["version"] is None, "no version is newer"
    for version in ("base", 1):
        assert (await http.post("/v1/rollouts", json={"version": version})).status_code == 409


async def test_erasing_a_user_takes_their_rollouts(http: httpx.AsyncClient) -> None:
    http.headers["x-burnish-user"] = "alice"
    rollout = await begin(http, task="secret")
    await ask(http, rollout)
    await send(http, rollout, "reward", value=1)
    assert (await http.delete("/burnish/users/alice")).status_code == 200
    assert (await http.get(f"/v1/rollouts/{rollout['id']}")).status_code == 404
    assert (await ask(http, rollout)).status_code == 404
