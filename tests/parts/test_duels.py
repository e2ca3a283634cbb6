"""Duels: pairs from the gate and from own prompts, judged blind; the better answer teaches, and erasing reaches all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from burnish.adapters.registry import Registry
from burnish.learner.pairs import sampled_duels
from burnish.learner.sampling import GatePrompt, ordinary
from burnish.proxy.log import duels
from burnish.proxy.log.duels import Duel
from burnish.training.job import PolicyReply
from tests.learner.test_plan import Rated, rated
from tests.support.inprocess import calling, logged
from tests.support.lora import random_lora, register, write_peft
from tests.support.tiny_gguf import TINY, random_llama, tiny_lora
from tests.support.vllm_double import Engine

QUESTION = "How long do I boil an egg?"
SHORT, LONG = "Seven minutes.", "It depends: seven minutes for a soft egg, and ten for a hard one."
PARAMS = {"temperature": 0.7, "max_tokens": 64}
KEYS = {"object", "id", "prompt", "before", "left", "right"}
Json = dict[str, Any]


def sampled(origin: str, question: str = QUESTION, new: str = SHORT, old: str = LONG) -> list[Duel]:
    """What a run keeps of one prompt that version 1 and the base model answered."""
    messages = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": question})
    prompt = GatePrompt(origin, messages, PARAMS, origin)
    facts: Json = {"prompt_id": origin, "messages": messages, "finished": True}
    ours = PolicyReply(policy="candidate", reply=new, **facts)
    theirs = PolicyReply(policy="incumbent", reply=old, **facts)
    return sampled_duels([prompt], [ours, theirs], candidate=1, incumbent=0)


@pytest.fixture
async def burnish(tmp_path: Path, weights: Path) -> AsyncIterator[Rated]:
    async with rated(tmp_path, weights) as burnish:
        yield burnish


@pytest.fixture
async def duel(burnish: Rated) -> Json:
    """Version 1 is live, and there is a pair of replies to something that alice asked."""
    await burnish.version(0, [])
    keep(burnish, *sampled(await asked(burnish.http)))
    (duel,) = (await offered(burnish.http))["data"]
    return dict(duel)


async def asked(http: httpx.AsyncClient, question: str = QUESTION, user: str = "alice") -> str:
    """Log a question of a user; returns the completion's ID."""
    body = {"model": "default", "messages": [{"role": "user", "content": question}]}
    answer = await http.post("/v1/chat/completions", json=body, headers={"x-burnish-user": user})
    name = answer.headers["x-burnish-completion-id"]
    (await http.get(f"/burnish/completions/{name}")).raise_for_status()  # it is stored
    return name


def keep(burnish: Rated, *pairs: Duel) -> None:
    """Store pairs as a run does, instead of the open ones."""
    with closing(sqlite3.connect(burnish.data / "burnish.db")) as log, log:
        duels.replace_sampled(log, 1, 0, pairs)


def root(burnish: Rated) -> Path:
    return burnish.data / "adapters"


async def offered(http: httpx.AsyncClient) -> dict[str, Any]:
    answer = await http.get("/burnish/duels")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def judge(http: httpx.AsyncClient, duel: dict[str, Any], choice: str) -> httpx.Response:
    return await http.post("/burnish/duels", json={"id": duel["id"], "choice": choice})


def side_of(duel: dict[str, Any], text: str) -> str:
    return "left" if duel["left"]["text"] == text else "right"


async def test_the_better_of_the_gates_replies_becomes_a_preference(burnish: Rated, duel: Json) -> None:
    assert duel.keys() == KEYS, "nothing tells the versions"
    assert (duel["prompt"], duel["before"]) == (QUESTION, [])
    assert {duel["left"]["text"], duel["right"]["text"]} == {SHORT, LONG}

    choice = side_of(duel, SHORT)
    told = await judge(burnish.http, duel, choice)
    assert told.status_code == 201
    revealed = told.json()
    other = "left" if choice == "right" else "right"
    assert revealed[choice] == {"version": 1, "name": "v1"}
    assert revealed[other] == {"version": 0, "name": "the base model"}
    assert (revealed["better"], revealed["usable"], revealed["reason"]) == (1, True, None)

    feedback = revealed["feedback"]
    assert (feedback["source"], feedback["rater"]) == ("duel", "local")
    made = {each["id"]: each for each in await logged(burnish.http)}
    better, worse = made[feedback["completion_id"]], made[feedback["preferred_over"]]
    assert (better["adapter_version"], worse["adapter_version"]) == (1, 0), "as the log says"
    assert (better["reply"]["content"], worse["reply"]["content"]) == (SHORT, LONG)
    assert better["messages"] == worse["messages"]
    assert better["params"] == PARAMS
    assert better["caller"] == "duels", "they aren't among the answers that alice got"

    after = await offered(burnish.http)
    assert (after["data"], after["judged"]) == ([], 1)
    assert "no pair left" in after["reason"]


async def test_a_preference_from_a_duel_trains_like_any_other(burnish: Rated, duel: Json) -> None:
    await judge(burnish.http, duel, side_of(duel, LONG))
    job = await burnish.job(force=True)
    (sample,) = job.samples()
    assert (sample.reply["content"], [each["content"] for each in sample.worse]) == (LONG, [SHORT])
    assert [each["content"] for each in sample.messages] == ["Be kind.", QUESTION]
    assert sample.behaviour_version == 0


async def test_equal_answers_are_counted_and_teach_nothing(burnish: Rated, duel: Json) -> None:
    revealed = (await judge(burnish.http, duel, "equal")).json()
    assert (revealed["better"], revealed["feedback"], revealed["usable"]) == (None, None, False)
    assert {revealed["left"]["name"], revealed["right"]["name"]} == {"v1", "the base model"}
    assert (await offered(burnish.http))["judged"] == 1
    assert len(await logged(burnish.http)) == 1, "only what alice asked"


async def test_nobody_judges_a_pair_twice(burnish: Rated, duel: Json) -> None:
    feedback = (await judge(burnish.http, duel, "left")).json()["feedback"]["id"]
    again = await judge(burnish.http, duel, "right")
    assert again.status_code == 409
    error = again.json()["error"]
    assert error["code"] == "judged"
    assert f"DELETE /v1/feedback/{feedback}" in error["message"]
    undone = await burnish.http.delete(f"/v1/feedback/{feedback}")
    assert undone.json()["undone_at"]
    assert len(await logged(burnish.http)) == 3, "the second attempt logged nothing"


async def test_the_order_is_random_and_stays(burnish: Rated, duel: Json) -> None:
    origin = (await logged(burnish.http))[0]["id"]
    many = [pair for number in range(40) for pair in sampled(origin, f"Question {number}?")]
    keep(burnish, *many)
    first, second = [(await offered(burnish.http))["data"] for _ in range(2)]
    assert first == second
    places = [side_of(each, SHORT) for each in first]
    assert {"left", "right"} == set(places), "one in 10^12 that they are all on one side"


async def test_pairs_kept_beside_the_versions_are_moved_into_the_log(tmp_path: Path, weights: Path) -> None:
    async with rated(tmp_path, weights) as burnish:
        await burnish.version(0, [])
        origin = await asked(burnish.http)
        file = root(burnish) / "v0001.pairs.json"
    facts = {"id": f"duel_{'0' * 26}", "prompt_id": origin, "sampled_at": 1.0, "params": PARAMS}
    pair = facts | {
        "messages": [{"role": "user", "content": QUESTION}],
        "left": {"version": 1, "text": SHORT, "finished": True},
        "right": {"version": 0, "text": LONG, "finished": False},
    }
    erased = pair | {"id": f"duel_{'1' * 26}", "prompt_id": "cmpl_erased"}
    ours = pair | {"id": f"duel_{'2' * 26}", "prompt_id": "ordinary_3"}
    file.write_text(json.dumps([pair, erased, ours]))
    async with rated(tmp_path, weights) as burnish:
        assert not file.exists()
        duels = (await offered(burnish.http))["data"]
        assert [duel["id"] for duel in duels] == [ours["id"], pair["id"]]
        assert duels[1]["left"] == {"text": SHORT, "cut": False}
        assert duels[1]["right"] == {"text": LONG, "cut": True}
        assert (await judge(burnish.http, duels[1], "left")).json()["better"] == 1
        await burnish.http.delete("/burnish/users/alice")
        assert [duel["id"] for duel in (await offered(burnish.http))["data"]] == [ours["id"]]
        assert await logged(burnish.http) == []


async def test_a_file_of_pairs_that_cannot_be_read_stays(tmp_path: Path, weights: Path) -> None:
    async with rated(tmp_path, weights) as burnish:
        file = root(burnish) / "v0001.pairs.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text('[{"id": 1}]')
    async with rated(tmp_path, weights) as burnish:
        assert (await offered(burnish.http))["data"] == []
        assert file.exists()


async def test_pages_of_pairs(burnish: Rated, duel: Json) -> None:
    origin = (await logged(burnish.http))[0]["id"]
    keep(burnish, *sampled(origin, "A?"), *sampled(origin, "B?"))
    page = (await burnish.http.get("/burnish/duels?limit=1")).json()
    assert ([pair["prompt"] for pair in page["data"]], page["has_more"]) == (["B?"], True)
    assert (await offered(burnish.http))["data"][1]["prompt"] == "A?", "those of an earlier test are gone"


@pytest.mark.parametrize(
    ("new", "old"), [(SHORT, SHORT), ("", LONG), (SHORT, " \n")], ids=["the same text", "nothing", "blanks"]
)
async def test_replies_that_nobody_can_compare_are_not_kept(new: str, old: str) -> None:
    assert sampled("cmpl_1", new=new, old=old) == []


async def test_an_ordinary_question_with_a_users_system_prompt_is_that_users() -> None:
    manners = GatePrompt("cmpl_1", ({"role": "system", "content": "Be Ann's."},), {}, "cmpl_1")
    assert {each.origin for each in ordinary([manners])} == {"cmpl_1"}
    assert {each.origin for each in ordinary([])} == {each.id for each in ordinary([])}


async def test_erasing_a_user_deletes_open_pairs_that_quote_them(burnish: Rated, duel: Json) -> None:
    await burnish.http.delete("/burnish/users/alice")
    assert (await offered(burnish.http))["data"] == []
    gone = await judge(burnish.http, duel, "left")
    assert gone.status_code == 404
    assert "was erased" in gone.json()["error"]["message"]


@pytest.mark.parametrize("user", ["alice", "local"], ids=["who asked", "who judged"])
async def test_erasing_a_user_deletes_judged_duels(burnish: Rated, duel: Json, user: str) -> None:
    await judge(burnish.http, duel, "left")
    await burnish.http.delete(f"/burnish/users/{user}")
    left = await logged(burnish.http)
    assert [each["caller"] for each in left] == (["alice"] if user == "local" else [])
    assert (await burnish.http.get("/v1/feedback")).json()["data"] == []
    with closing(sqlite3.connect(burnish.data / "burnish.db")) as log:
        assert log.execute("SELECT count(*) FROM duel").fetchone() == (0,)


async def test_starting_over_leaves_nothing_to_judge(burnish: Rated, duel: Json) -> None:
    assert (await ask(burnish.http)).status_code == 201
    assert len((await offered(burnish.http))["data"]) == 2
    (await burnish.http.post("/burnish/reset", json={})).raise_for_status()
    assert (await offered(burnish.http))["data"] == []


async def ask(http: httpx.AsyncClient, prompt: str = QUESTION, **headers: str) -> httpx.Response:
    return await http.post("/burnish/duels/ask", json={"prompt": prompt}, headers=headers)


async def test_a_prompt_is_answered_by_two_versions_as_the_log_says(burnish: Rated) -> None:
    """Each answer of the double is the name of the model that was asked for."""
    await burnish.version(0, [])
    answer = await ask(burnish.http, **{"x-burnish-user": "ann"})
    assert answer.status_code == 201
    duel = answer.json()
    assert duel.keys() == KEYS
    assert duel["prompt"] == QUESTION
    assert (await offered(burnish.http))["data"] == [duel]

    made = await logged(burnish.http)
    texts = {each["adapter_version"]: each["reply"]["content"] for each in made}
    assert texts.keys() == {0, 1}
    assert {(each["caller"], each["prompt"]) for each in made} == {("ann", QUESTION)}
    choice = side_of(duel, texts[1])
    revealed = (await judge(burnish.http, duel, choice)).json()
    assert (revealed["better"], revealed[choice]["version"]) == (1, 1)
    by_version = {each["adapter_version"]: each["id"] for each in made}
    feedback = revealed["feedback"]
    assert feedback["completion_id"] == by_version[1]
    assert feedback["preferred_over"] == by_version[0]


async def test_a_judged_candidate_is_loaded_to_be_compared(burnish: Rated, tmp_path: Path) -> None:
    await burnish.version(0, [])
    await burnish.version(1, [])
    registry = Registry(root(burnish))
    made = register(registry, write_peft(tmp_path / "third", random_lora(3)), burnish.digest)
    assert (await ask(burnish.http, "Before it was judged?")).status_code == 201
    registry.record(made.number, "candidate", "undecided", verdict={"checks": []})
    assert (await ask(burnish.http, "And after?")).status_code == 201
    versions = [each["adapter_version"] for each in await logged(burnish.http)]
    assert set(versions[:2]) == {1, 2}, "the one that was live before"
    assert set(versions[2:]) == {2, 3}


async def test_after_a_way_back_the_version_before_is_the_other_one(burnish: Rated) -> None:
    await burnish.version(0, [])
    await burnish.http.post("/burnish/adapters/rollback", json={"to": 0})
    assert (await ask(burnish.http)).status_code == 201
    assert {each["adapter_version"] for each in await logged(burnish.http)} == {0, 1}


async def test_a_version_under_test_is_not_asked(burnish: Rated, tmp_path: Path) -> None:
    register(Registry(root(burnish)), write_peft(tmp_path / "made", random_lora(1)), burnish.digest)
    page = await offered(burnish.http)
    assert (page["can_ask"], "still being tested" in page["reason"]) == (False, True)
    assert (await ask(burnish.http)).status_code == 409


async def test_the_embedded_engine_loads_what_is_asked_and_answers_as_both(tmp_path: Path) -> None:
    """First a candidate beside the live base model, then the base model in the process of the live version."""
    model = random_llama(tmp_path / "tiny.gguf")
    adapter = write_peft(tmp_path / "trained", tiny_lora(TINY, 1))
    settings: dict[str, Any] = {"model": str(model), "engine": "auto", "context": 512}
    async with calling(tmp_path, **settings, train={"schedule": "manual"}) as http:
        (await http.post("/burnish/adapters", json={"path": str(adapter)})).raise_for_status()
        first = await ask(http)
        assert first.status_code == 201, first.text
        (await http.post("/burnish/adapters/1/promote", json={})).raise_for_status()
        second = await ask(http, "And how long for a soft one?")
        assert second.status_code == 201, second.text
        texts = {each["reply"]["content"]: each["adapter_version"] for each in await logged(http)}
        for duel in (first.json(), second.json()):
            assert sorted(texts[duel[side]["text"]] for side in ("left", "right")) == [0, 1]


class SaysTheSame(Engine):
    async def chat(self, request: Request) -> Response:
        response = await super().chat(request)
        name = (await request.json())["model"]
        return Response(bytes(response.body).replace(name.encode(), b"Yes."), media_type="application/json")


async def test_equal_texts_are_no_duel(tmp_path: Path, weights: Path) -> None:
    async with rated(tmp_path, weights, SaysTheSame()) as burnish:
        await burnish.version(0, [])
        answer = await ask(burnish.http)
        assert (answer.status_code, answer.json()["id"], answer.json()["same"]) == (200, None, "Yes.")
        assert (await offered(burnish.http))["data"] == []
        assert {each["adapter_version"] for each in await logged(burnish.http)} == {0, 1}


async def test_without_a_second_version_it_says_what_to_do(burnish: Rated) -> None:
    page = await offered(burnish.http)
    assert (page["data"], page["judged"], page["can_ask"]) == ([], 0, False)
    assert "only the base model" in page["reason"]
    refused = await ask(burnish.http)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_version")


async def test_where_burnish_does_not_learn_it_says_so(tmp_path: Path) -> None:
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as http:
        assert "engine = none" in (await offered(http))["reason"]
        refused = await ask(http)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_learning")


async def test_a_version_that_is_gone_is_not_judged(burnish: Rated) -> None:
    await burnish.version(0, [])
    duel = (await ask(burnish.http)).json()
    await burnish.http.post("/burnish/adapters/rollback", json={"to": 0})
    Registry(root(burnish)).prune(1, "for the test")
    assert (await offered(burnish.http))["data"] == []
    gone = await judge(burnish.http, duel, "left")
    assert (gone.status_code, gone.json()["error"]["code"]) == (409, "version_gone")


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("", {"id": "duel_1", "choice": "both"}, "choice"),
        ("", {"id": "duel_1"}, "choice"),
        ("/ask", {"prompt": " "}, "must not be empty"),
        ("/ask", {"prompt": "/rl good"}, "not a command"),
        ("/ask", {"prompt": "x" * 20_001}, "20000 characters"),
    ],
)
async def test_what_is_wrong_is_named(tmp_path: Path, path: str, body: dict[str, str], says: str) -> None:
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as http:
        refused = await http.post(f"/burnish/duels{path}", json=body)
        assert refused.status_code == 422
        assert says in refused.json()["error"]["message"]


async def test_nobody_claims_to_have_judged_a_duel(burnish: Rated) -> None:
    said = {"last": True, "rating": "good", "source": "duel"}
    refused = await burnish.http.post("/v1/feedback", json=said)
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "source")


async def test_reading_and_asking_need_the_admin_key_and_judging_does_not(tmp_path: Path) -> None:
    keys = {"api_key": "user-key", "admin_key": "owner-key"}
    async with calling(tmp_path, upstream="http://127.0.0.1:9", **keys) as http:
        http.headers["authorization"] = "Bearer user-key"
        assert (await http.get("/burnish/duels")).status_code == 403
        assert (await ask(http)).status_code == 403
        assert (await judge(http, {"id": "duel_1"}, "left")).status_code == 409, "burnish doesn't learn here"
