"""The best of N: several answers are asked for, the reward model chooses, and all of them are in the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from burnish.gate.rewards import Ensemble
from burnish.gate.rewards.model import Ridges
from burnish.system.apart import LARGE_BYTES
from tests.support.chat_wire import called, chunks, whole
from tests.support.inprocess import behind, logged
from tests.support.rated import ask, keep_model, learnt_ensemble, parrot, saying, sentence
from tests.support.upstream import Script, Upstream, completion, reply, stream

BEST_OF = "x-burnish-best-of"


def texts(*liked: bool, seed: int = 5) -> list[str]:
    dice = random.Random(seed)
    return [sentence(dice, liked=each) for each in liked]


@asynccontextmanager
async def choosing(
    tmp_path: Path, *answers: str | Script, model: Ensemble | None = None, **flags: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Upstream]]:
    """Run burnish with a reward model before an upstream with these answers; without any it is a parrot."""
    keep_model(tmp_path / "data", model)
    scripts = [reply(completion(each)) if isinstance(each, str) else each for each in answers]
    async with behind(tmp_path, saying(*scripts) if scripts else parrot({}), **flags) as (client, server):
        yield client, server


def text_of(answer: httpx.Response) -> Any:
    return answer.json()["choices"][0]["message"]["content"]


async def test_the_best_answer_is_sent_and_all_are_logged_with_their_rewards(tmp_path: Path) -> None:
    said = texts(False, False, True, False)
    async with choosing(tmp_path, *said) as (client, server):
        answer = await ask(client, "Tell me.", headers={BEST_OF: "4"}, temperature=1.0)
        assert text_of(answer) == said[2]
        assert answer.headers[BEST_OF] == "4"
        assert len(server.requests) == 4
        assert all(BEST_OF not in dict(each.headers) for each in server.requests)
        rows = await logged(client)
        sent = answer.headers["x-burnish-completion-id"]
        assert [row["id"] for row in rows if row["best_of"] == row["id"]] == [sent]
        assert {row["best_of"] for row in rows} == {sent}
        by_text = {row["reply"]["content"]: row for row in rows}
        assert by_text.keys() == set(said)
        assert max(rows, key=lambda row: row["reward"])["id"] == sent
        reward = by_text[said[2]]["reward"]
        assert float(answer.headers["x-burnish-reward"]) == pytest.approx(reward, abs=1e-4)
        assert {row["rewarded_by"] for row in rows} == {(await client.get("/burnish/reward")).json()["id"]}
        assert len({row["conversation_id"] for row in rows}) == 1
        assert all(row["params"] == {"temperature": 1.0} for row in rows)

        server.script = parrot({})
        spoken = (("user", "Tell me."), ("assistant", said[2]), ("user", "And then?"))
        history = [{"role": role, "content": text} for role, text in spoken]
        await client.post("/v1/chat/completions", json={"model": "m", "messages": history})
        assert (await logged(client))[-1]["continues"] == sent, "the conversation goes on from what was sent"


async def test_what_was_not_sent_is_nobodys_last_answer(tmp_path: Path) -> None:
    said = texts(True, False, False)
    async with choosing(tmp_path, *said) as (client, _):
        answer = await ask(client, "Tell me.", burnish_best_of=3)
        rated = (await client.post("/v1/feedback", json={"last": True, "rating": "good"})).json()
        assert rated["completion_id"] == answer.headers["x-burnish-completion-id"]
        by_name = {"response_id": "chatcmpl-1", "rating": "good"}  # the upstream gave all the same
        named = (await client.post("/v1/feedback", json=by_name)).json()
        assert named["completion_id"] == rated["completion_id"]


async def test_the_member_of_the_body_stays_here(tmp_path: Path) -> None:
    async with choosing(tmp_path) as (client, server):
        for count in (1, 2):
            answer = await ask(client, "usually", burnish_best_of=count)
            assert answer.status_code == 200, answer.text
        assert len(server.requests) == 3
        assert all("burnish_best_of" not in each.json() for each in server.requests)
        assert all("burnish_best_of" not in row["params"] for row in await logged(client))


async def test_a_stream_is_replayed_as_it_came(tmp_path: Path) -> None:
    said = texts(False, True)
    events = [chunks(whole({"content": each})) for each in said]
    async with choosing(tmp_path, *map(stream, events)) as (client, _):
        answer = await ask(client, "Tell me.", headers={BEST_OF: "2"}, stream=True)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.content == b"".join(events[1])


async def test_calls_of_tools_are_chosen_among_as_well(tmp_path: Path) -> None:
    dull, best = [called("look_up", {"words": each}) for each in texts(False, True)]
    answers = [reply(orjson.dumps(whole({"content": None, "tool_calls": [each]}))) for each in (dull, best)]
    async with choosing(tmp_path, *answers) as (client, _):
        answer = await ask(client, "Tell me.", headers={BEST_OF: "2"})
        assert answer.json()["choices"][0]["message"]["tool_calls"] == [best]


async def test_failed_answers_are_passed_over_and_if_all_fail_the_error_is_sent(tmp_path: Path) -> None:
    broken = reply(b'{"error": {"message": "out of memory"}}', status="500 Oops")
    (good,) = texts(True)
    async with choosing(tmp_path, broken, good, broken) as (client, server):
        answer = await ask(client, "Tell me.", headers={BEST_OF: "3"})
        assert text_of(answer) == good
        server.script = broken
        failed = await ask(client, "Again.", headers={BEST_OF: "2"})
        assert (failed.status_code, failed.json()["error"]["message"]) == (500, "out of memory")
        assert [row["status"] for row in await logged(client)].count(500) == 4


async def test_an_upstream_that_is_gone_is_an_error_like_without(tmp_path: Path) -> None:
    async with choosing(tmp_path, upstream="http://127.0.0.1:9") as (client, _):
        failed = await ask(client, "Tell me.", headers={BEST_OF: "2"})
        assert (failed.status_code, failed.json()["error"]["code"]) == (502, "upstream_unreachable")
        assert [row["outcome"] for row in await logged(client)] == ["failed", "failed"]


REFUSED: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({BEST_OF: "0"}, {}, "a number from 1 to 16 (reward.best_of_max), not '0'"),
    ({BEST_OF: "1000"}, {}, "a number from 1 to 16 (reward.best_of_max), not '1000'"),
    ({BEST_OF: "17"}, {}, "a number from 1 to 16 (reward.best_of_max), not '17'"),
    ({BEST_OF: "many"}, {}, "'many'"),
    ({BEST_OF: "-4"}, {}, "'-4'"),
    ({}, {"burnish_best_of": True}, "'True'"),
    ({}, {"burnish_best_of": 2.5}, "'2.5'"),
    ({}, {"burnish_best_of": None}, "'None'"),
    ({BEST_OF: "2"}, {"burnish_best_of": 3}, "contradict each other"),
    ({BEST_OF: "2"}, {"n": 2}, "can't be combined"),
    ({BEST_OF: "2"}, {"user": "x" * LARGE_BYTES}, "send less"),
]


async def test_a_wrong_number_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    async with choosing(tmp_path) as (client, server):
        for headers, body, says in REFUSED:
            refused = await ask(client, "Tell me.", headers=headers, **body)
            assert refused.status_code == 400, says
            assert says in refused.json()["error"]["message"]
        assert not server.requests


async def test_without_a_reward_model_nothing_is_asked(tmp_path: Path) -> None:
    async with behind(tmp_path, parrot({})) as (client, server):
        refused = await ask(client, "Tell me.", headers={BEST_OF: "2"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_reward_model")
        assert "burnish reward train" in refused.json()["error"]["message"]
        assert not server.requests
        assert (await ask(client, "Tell me.", headers={BEST_OF: "1"})).status_code == 200


async def test_rewards_that_are_no_numbers_choose_nothing(tmp_path: Path) -> None:
    learnt = learnt_ensemble().members
    assert isinstance(learnt, Ridges)
    coefficients, constants = np.full_like(learnt.coefficients, 1e308), np.full_like(learnt.constants, -1e308)
    huge = Ensemble(Ridges(learnt.features, coefficients, constants))
    async with choosing(tmp_path, *texts(True, True), model=huge) as (client, _):
        refused = await ask(client, "Tell me.", headers={BEST_OF: "2"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "reward_model_broken")
        assert [row["reward"] for row in await logged(client)] == [None, None]


async def test_a_client_that_leaves_stops_all_answers(tmp_path: Path) -> None:
    asked = asyncio.Semaphore(0)

    async def never(request: object, writer: asyncio.StreamWriter) -> None:
        asked.release()
        await asyncio.Event().wait()

    async with choosing(tmp_path, never, never, never) as (client, _):
        waiting = asyncio.ensure_future(ask(client, "Tell me.", headers={BEST_OF: "3"}))
        for _ in range(3):
            await asked.acquire()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        rows: list[dict[str, Any]] = []
        while len(rows) < 3:
            rows = await logged(client)
        assert [row["outcome"] for row in rows] == ["cancelled"] * 3


async def test_the_answers_share_one_budget_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.parts.rewards.best_of.CAPTURE_LIMIT_BYTES", 100_000)
    said = ["x" * 60_000, *texts(True), "y" * 60_000]
    async with choosing(tmp_path, *said) as (client, _):
        answer = await ask(client, "Tell me.", headers={BEST_OF: "3"})
        assert text_of(answer) == said[1]
        assert [row["reward"] is None for row in await logged(client)] == [True, False, True]


async def test_the_beginning_of_an_answer_is_scored(tmp_path: Path) -> None:
    """Scoring keeps a core busy, so a long answer must not keep it longer."""
    (good,) = texts(True)
    async with choosing(tmp_path, good, good.ljust(20_000) + "bad " * 100_000) as (client, _):
        await ask(client, "Tell me.", headers={BEST_OF: "2"})
        rewards = [row["reward"] for row in await logged(client)]
        assert rewards[0] == pytest.approx(rewards[1], abs=0.2)


@pytest.mark.parametrize(("most", "count"), [(1, 2), (4, 5), (4, 16)])
async def test_a_setting_says_how_many_answers_one_may_ask_for(tmp_path: Path, most: int, count: int) -> None:
    async with choosing(tmp_path, reward={"best_of_max": most}) as (client, server):
        refused = await ask(client, "Tell me.", headers={BEST_OF: str(count)})
        assert refused.status_code == 400
        assert f"from 1 to {most} (reward.best_of_max)" in refused.json()["error"]["message"]
        assert server.requests == []
