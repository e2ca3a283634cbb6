"""Feedback and the log over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from burnish.adapters.manifest import AdapterVersion
from burnish.app.asgi import own_application
from burnish.learner.version_details import fates_in
from burnish.proxy.access.access import EVERYBODY, IDENTITY
from burnish.proxy.feedback import completion_routes, feedback_routes
from burnish.proxy.feedback.shapes import Fates
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.records import Feedback
from tests.proxy.log.exchanges import assistant, capture, user


@dataclass
class Service:
    log: Log
    http: httpx.AsyncClient
    told: list[Feedback] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    async def post(self, body: Any, **headers: str) -> httpx.Response:
        return await self.http.post("/v1/feedback", json=body, headers=headers)


@asynccontextmanager
async def served(log: Log, versions: Sequence[AdapterVersion] = ()) -> AsyncIterator[Service]:
    """Serve the routes over a log; ``versions`` are those that training has made."""
    forgotten: list[str] = []

    async def on_forgotten(user: str) -> None:
        forgotten.append(user)

    async def fates() -> Fates:
        return fates_in(versions)

    told: list[Feedback] = []
    rules = Rules({"bob": 0.5}, "auto", scrub=True)
    routes = feedback_routes(log, told.append, rules, fates)
    routes += completion_routes(log, on_forgotten, rules, fates)
    own = own_application(routes)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await own({**scope, IDENTITY: EVERYBODY}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://burnish") as http:
        yield Service(log, http, told, forgotten)


def refused(answer: httpx.Response, status: int, param: str | None = None) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    if param is not None:
        assert error["param"] == param
    return str(error["message"])


@pytest.mark.parametrize(
    ("said", "reward", "scale"),
    [
        ({"rating": "good"}, 1.0, "binary"), ({"rating": "bad"}, -1.0, "binary"), ({"rating": True}, 1.0, "binary"),
        ({"rating": False, "scale": "binary"}, -1.0, "binary"), ({"rating": 0.25}, 0.25, "scalar"),
        ({"rating": -1}, -1.0, "scalar"), ({"rating": 0}, 0.0, "scalar"),
        ({"rating": 1, "scale": "likert"}, -1.0, "likert"), ({"rating": 4, "scale": "likert"}, 0.5, "likert"),
        ({"rating": 5, "scale": "likert"}, 1.0, "likert"), ({"rating": 1, "scale": "scalar"}, 1.0, "scalar"),
        ({"rating": "good", "scale": "binary"}, 1.0, "binary"), ({"comment": "too long"}, None, None),
        ({"correction": "Paris."}, None, None),
    ],
)  # fmt: skip
async def test_every_kind_is_stored(
    burnish: Service, said: dict[str, Any], reward: float | None, scale: str | None
):
    made = capture(burnish.log, [user("hi")])
    answer = await burnish.post({"completion_id": made, **said})
    assert answer.status_code == 201
    record = answer.json()
    expected = {"object": "feedback", "completion_id": made, "target": "completion_id", "reward": reward}
    expected |= {"scale": scale, "comment": said.get("comment"), "correction": said.get("correction")}
    expected |= {"scope": "completion", "source": "human", "rater": "local", "weight": 1.0}
    assert record.items() >= expected.items()
    shown = await burnish.http.get(f"/v1/feedback/{record['id']}")
    common = {name: record[name] for name in ("repeated", "about")}
    assert record | {"learnt_by": None} == shown.json() | common
    assert (record["repeated"], record["about"]) == (False, {"prompt": "hi", "reply": "Hello!"})
    assert [each.id for each in burnish.told] == [record["id"]]


async def test_everything_that_can_be_said_is_kept(burnish: Service):
    better, worse = capture(burnish.log, [user("a")]), capture(burnish.log, [user("a")])
    said = {"rating": 0.5, "comment": "clearer", "correction": "Paris.", "preferred_over": worse}
    said |= {"scope": "turn", "source": "judge", "rater": "gpt", "weight": 0.5, "tags": ["a", "b"]}
    said["idempotency_key"] = "k1"
    answer = await burnish.post({"completion_id": better, **said})
    assert answer.status_code == 201
    record = answer.json()
    assert record["reward"] == said.pop("rating")
    assert {name: record[name] for name in said} == said


async def test_each_target_finds_its_completion(burnish: Service):
    first = capture(burnish.log, [user("a")], "one", response_id="r1", caller="ann", session="s1")
    history = [user("a"), assistant("one"), user("b")]
    second = capture(burnish.log, history, "two", response_id="r2", caller="ann", session="s2")
    capture(burnish.log, [user("c")], response_id="r3")
    conversation = (await burnish.log.completion(first)).conversation_id
    cases: list[tuple[dict[str, Any], dict[str, str], str]] = [
        ({"completion_id": first}, {}, first),
        ({"response_id": "r1"}, {}, first),
        ({"conversation_id": conversation}, {}, second),
        ({"last": True}, {"x-burnish-user": "ann"}, second),
        ({"last": True}, {"x-burnish-user": "ann", "x-burnish-session": "s1"}, first),
    ]
    for number, (target, headers, meant) in enumerate(cases):
        record = (await burnish.post({**target, "rating": number / 10}, **headers)).json()
        assert record["completion_id"] == meant
        assert record["target"] == next(iter(target))
        assert record["rater"] == headers.get("x-burnish-user", "local")


WRONG_TARGETS: list[tuple[Any, str | None, str]] = [
    ({"rating": "good"}, "completion_id", "exactly one of"),
    ({"completion_id": "C", "last": True, "rating": "good"}, "last", "exactly one of"),
    ({"last": False, "rating": "good"}, "last", "must be true"),
    ({"last": "yes", "rating": "good"}, "last", "boolean"),
    ({"completion_id": "", "rating": "good"}, "completion_id", "at least 1"),
    ({"completion_id": 5, "rating": "good"}, "completion_id", "string"),
    ([1], None, "JSON object"),
    ("good", None, "JSON object"),
]
WRONG_WORDS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "rating", "at least one"),
    ({"scope": "turn", "tags": ["x"]}, "rating", "at least one"),
    ({"rating": "great"}, "rating", '"good", "bad"'),
    *[({"rating": value}, "rating", "-1 to 1") for value in (2, -1.01, [1])],
    *[({"rating": value, "scale": "likert"}, "rating", "1 to 5") for value in (0, 6, "good")],
    ({"rating": 3.5, "scale": "likert"}, "rating", "whole number"),
    *[({"rating": True, "scale": scale}, "rating", "True") for scale in ("scalar", "likert")],
    ({"rating": "good", "scale": "scalar"}, "rating", "-1 to 1"),
    ({"rating": 1, "scale": "binary"}, "rating", '"good", "bad", true or false'),
    ({"comment": "x", "scale": "likert"}, "scale", "add one"),
    *[({"comment": value}, "comment", "must not be empty") for value in ("", " \n")],
    ({"comment": 5}, "comment", "string"),
    ({"correction": ""}, "correction", "must not be empty"),
    ({"preferred_over": "C"}, "preferred_over", "itself"),
]
WRONG_BESIDE = [
    ("scale", "stars", "likert"), ("scope", "world", "conversation"), ("source", "dog", "human"),
    ("weight", 0, "greater than 0"), ("weight", 1e9, "100"), ("weight", True, "number"), ("weight", "2", "number"),
    ("tags", "x", "list"), ("tags", ["x"] * 33, "32"), ("idempotency_key", "", "at least 1"),
    ("rater", "", "at least 1"), ("ratnig", 1, "unknown field"),
]  # fmt: skip
"""What may stand beside a rating, its value, and what the error says."""
ABOUT = {"completion_id": "C"}
WRONG = [*WRONG_TARGETS, *((ABOUT | body, param, hint) for body, param, hint in WRONG_WORDS)]
WRONG += [(ABOUT | {"rating": 1, name: value}, name, hint) for name, value, hint in WRONG_BESIDE]
WRONG += [(ABOUT | {"rating": 1, "tags": ["x", 5]}, "tags.1", "string")]


@pytest.mark.parametrize(("body", "param", "hint"), WRONG)
async def test_a_wrong_value_names_field_and_rule(burnish: Service, body: Any, param: str | None, hint: str):
    made = capture(burnish.log, [user("hi")])
    if isinstance(body, dict):
        body = {name: made if value == "C" else value for name, value in body.items()}
    answer = await burnish.post(body)
    assert hint in refused(answer, 422, param)
    assert await burnish.log.feedbacks() == []
    assert burnish.told == []


async def test_unknown_targets_are_not_found(burnish: Service):
    made = capture(burnish.log, [user("hi")], caller="ann")
    for target in ({"completion_id": "x"}, {"response_id": "x"}, {"conversation_id": "x"}, {"last": True}):
        answer = await burnish.post({**target, "rating": "good"})
        refused(answer, 404, next(iter(target)))
    answer = await burnish.post({"completion_id": made, "preferred_over": "x"})
    refused(answer, 404, "preferred_over")


@pytest.mark.parametrize("target", ["completion_id", "response_id"])
async def test_an_id_that_a_client_made_up_is_explained(burnish: Service, target: str):
    made_up = "chatcmpl-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"  # as litellm makes them
    told = refused(await burnish.post({target: made_up, "rating": "good"}), 404, target)
    assert made_up in told
    for hint in ("litellm", "x-burnish-completion-id", '"last": true', "`burnish good`"):
        assert hint in told


async def test_an_ambiguous_response_id_lists_the_candidates(burnish: Service):
    made = {capture(burnish.log, [user(str(n))]) for n in range(2)}
    answer = await burnish.post({"response_id": "chatcmpl-1", "rating": "good"})
    refused(answer, 409, "response_id")
    assert {each["completion_id"] for each in answer.json()["error"]["candidates"]} == made


async def test_a_repeated_key_gives_the_first_record_and_another_content_a_conflict(burnish: Service):
    made = capture(burnish.log, [user("hi")])
    body = {"completion_id": made, "rating": "good", "idempotency_key": "k"}
    first, second = await burnish.post(body), await burnish.post(body)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json() | {"repeated": True}
    assert len(burnish.told) == 1
    refused(await burnish.post({**body, "rating": "bad"}), 409, "idempotency_key")
    assert (await burnish.post(body, **{"x-burnish-user": "bob"})).status_code == 201


async def test_undo_takes_back_and_stays_in_the_list(burnish: Service):
    made = capture(burnish.log, [user("hi")])
    posted = (await burnish.post({"completion_id": made, "rating": "good"})).json()
    record = (await burnish.http.get(f"/v1/feedback/{posted['id']}")).json()
    undone = await burnish.http.delete(f"/v1/feedback/{record['id']}")
    assert undone.status_code == 200
    now: dict[str, Any] = {"rated": None, "about": {"prompt": "hi", "reply": "Hello!"}}
    now |= {"usable": False, "reason": "taken back"}
    assert undone.json() == {**record, "undone_at": undone.json()["undone_at"], **now}
    assert undone.json()["undone_at"] is not None
    assert [each.undone_at for each in burnish.told] == [None, undone.json()["undone_at"]]
    (listed,) = (await burnish.http.get("/v1/feedback")).json()["data"]
    assert undone.json() == listed | now
    assert (await burnish.http.get(f"/burnish/completions/{made}")).json()["rating"] is None
    for method in ("GET", "DELETE"):
        refused(await burnish.http.request(method, "/v1/feedback/fb_nobody"), 404)


async def test_lists_come_in_pages(burnish: Service):
    made = [capture(burnish.log, [user(f"q{n}")]) for n in range(3)]
    ids = [(await burnish.post({"completion_id": each, "rating": "good"})).json()["id"] for each in made]
    for path, expected in (("/v1/feedback", ids[::-1]), ("/burnish/completions", made[::-1])):
        page = (await burnish.http.get(path, params={"limit": 2})).json()
        assert ([each["id"] for each in page["data"]], page["has_more"]) == (expected[:2], True)
        rest = (await burnish.http.get(path, params={"before": expected[1]})).json()
        assert ([each["id"] for each in rest["data"]], rest["has_more"]) == (expected[2:], False)
    listed = (await burnish.http.get("/burnish/completions", params={"limit": 1})).json()["data"][0]
    assert (listed["prompt"], listed["rating"], listed["messages"], listed["params"]) == ("q2", 1.0, [], {})
    conversation = {"conversation_id": listed["conversation_id"]}
    for wanted, expected in (({"completion_id": made[1]}, ids[1]), (conversation, ids[2])):
        one = (await burnish.http.get("/v1/feedback", params=wanted)).json()
        assert [each["id"] for each in one["data"]] == [expected]


async def test_feedback_is_listed_by_who_gave_it_and_of_what(burnish: Service):
    made = [capture(burnish.log, [user(f"q{n}")], adapter_version=n) for n in range(3)]
    answers = (*made, made[2])
    given: list[dict[str, Any]] = [
        {"rating": "good", "rater": "ann", "tags": ["a", "b"]},
        {"rating": "bad", "source": "implicit"},
        {"rating": 0.5, "rater": "ann", "tags": ["b"]},
        {"comment": "too long"},
    ]
    for answer, said in zip(answers, given, strict=True):
        assert (await burnish.post({"completion_id": answer, **said})).status_code == 201
    for numbers, queries in {
        (2, 0): ("rater=ann", "tag=b", "rating=good"),
        (0,): ("rater=ann&tag=a", "version=0", "version=base"),
        (1,): ("source=implicit", "rating=bad"),
        (2,): ("rating=0.5", "version=2&rating=good"),
        (3, 2): ("version=2",),
        (): ("rater=eve",),
    }.items():
        for query in queries:
            listed = (await burnish.http.get(f"/v1/feedback?{query}")).json()["data"]
            rows = [(each["completion_id"], each["comment"]) for each in listed]
            assert rows == [(answers[n], given[n].get("comment")) for n in numbers], query


@pytest.mark.parametrize(
    ("path", "wrong", "status"),
    [
        ("/v1/feedback", "raters=ann", 400), ("/v1/feedback", "conversation=c", 400),
        ("/v1/feedback", "rating=great", 422), ("/v1/feedback", "rating=nan", 422),
        ("/v1/feedback", "version=x", 422), ("/v1/feedback", "source=dog", 422),
        ("/burnish/completions", "conversation_id=c", 400), ("/burnish/regenerations", "after=c", 400),
        ("/burnish/passthrough", "conversation=c", 400), ("/burnish/users/ann", "before=c", 400),
    ],
)  # fmt: skip
async def test_a_query_that_makes_no_sense_is_refused(burnish: Service, path: str, wrong: str, status: int):
    refused(await burnish.http.get(f"{path}?{wrong}"), status, wrong.partition("=")[0])


async def test_the_next_turn_and_what_was_asked_again_are_shown(burnish: Service):
    made = [
        capture(burnish.log, [user("hi")], text, created_at=1_790_000_000.0 + 10 * number, total_s=1.0)
        for number, text in enumerate(("Hello!", "Good day!"))
    ]
    next_ = capture(burnish.log, [user("hi"), assistant("Good day!"), user("shorter")], "Hi.")
    shown = [(await burnish.http.get(f"/burnish/completions/{each}")).json() for each in (*made, next_)]
    linked = [(each["continues"], each["next_turn"]) for each in shown]
    assert linked == [(None, None), (None, "shorter"), (made[1], None)]
    again = (await burnish.http.get("/burnish/regenerations", params={"limit": 1})).json()
    regeneration: dict[str, Any] = {"object": "regeneration", "completion_id": made[1], "instead_of": made[0]}
    regeneration |= {"conversation_id": shown[1]["conversation_id"], "created_at": 1_790_000_010.0}
    regeneration["went_on_from"] = made[1]
    assert again == {"object": "list", "data": [regeneration], "has_more": False}
    assert (await burnish.http.get("/v1/feedback")).json()["data"] == []


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "", "1e3", "9" * 30, "٣"])
async def test_a_wrong_limit_is_named(burnish: Service, limit: str):
    for path in ("/v1/feedback", "/burnish/completions", "/burnish/regenerations"):
        refused(await burnish.http.get(path, params={"limit": limit}), 422, "limit")


async def test_a_completion_is_shown_with_its_context(burnish: Service):
    made = capture(burnish.log, [user("hi")], "Hello!", params={"temperature": 0.5})
    shown = (await burnish.http.get(f"/burnish/completions/{made}")).json()
    expected = {"messages": [user("hi")], "params": {"temperature": 0.5}, "reply": assistant("Hello!")}
    assert {name: shown[name] for name in expected} == expected
    conversation = {"conversation": shown["conversation_id"]}
    listed = await burnish.http.get("/burnish/completions", params=conversation)
    assert [each["id"] for each in listed.json()["data"]] == [made]
    refused(await burnish.http.get("/burnish/completions/cmpl_nobody"), 404)


async def test_only_json_of_reasonable_size_is_taken(burnish: Service):
    good = b'{"last": true, "rating": "good"}'
    kinds = ("text/plain", "application/x-www-form-urlencoded")
    for headers in ({}, *({"content-type": kind} for kind in kinds)):
        refused(await burnish.http.post("/v1/feedback", content=good, headers=headers), 415)
    json = {"content-type": "application/json; charset=utf-8"}
    refused(await burnish.http.post("/v1/feedback", content=b"{bad", headers=json), 400)
    refused(await burnish.http.post("/v1/feedback", content=b"", headers=json), 422, "completion_id")
    refused(await burnish.http.post("/v1/feedback", content=b'"\xff"', headers=json), 400)
    huge = b'{"comment": "' + b"x" * 2_000_000 + b'"}'
    refused(await burnish.http.post("/v1/feedback", content=huge, headers=json), 413)
    refused(await burnish.http.post("/v1/feedback", content=good, headers=json), 404)


async def test_raters_are_shown_with_how_far_they_agree_with_the_others(burnish: Service):
    made = [capture(burnish.log, [user(f"q{n}")], assistant(f"a{n}")) for n in range(6)]
    # A letter an answer: good, bad, or none.
    for rater, ratings in {"ann": "gggbbb", "bob": "ggbbb", "eve": "bb-g"}.items():
        for completion_id, letter in zip(made, ratings, strict=False):
            if rating := {"g": "good", "b": "bad"}.get(letter):
                body = {"completion_id": completion_id, "rating": rating, "rater": rater}
                assert (await burnish.post(body)).status_code == 201
    await burnish.post({"completion_id": made[5], "comment": "too long", "rater": "only a comment"})
    taken_back = (await burnish.post({"completion_id": made[5], "rating": "good", "rater": "eve"})).json()
    await burnish.http.delete(f"/v1/feedback/{taken_back['id']}")
    found = {each.pop("name"): each for each in (await burnish.http.get("/burnish/raters")).json()["data"]}
    assert list(found) == ["ann", "bob", "eve", "only a comment"]
    assert found["only a comment"]["commented"] == 1
    eve = {"good": 1, "bad": 2, "commented": 0, "compared": 3, "agreed": 0, "by_chance": 4 / 3, "weight": 1.0}
    assert found["eve"] == eve
    # Of the first, second and fourth, bob and eve say as much good as bad: there are no others to agree with.
    ann = {"good": 3, "bad": 3, "commented": 0, "compared": 2, "agreed": 1, "by_chance": 1.0, "weight": 1.0}
    assert found["ann"] == ann
    assert (found["bob"]["agreed"], found["bob"]["compared"], found["bob"]["weight"]) == (1, 2, 0.5)


async def test_a_user_is_forgotten_for_good(burnish: Service):
    made = capture(burnish.log, [user("my secret")], caller="ann/b c")
    kept = capture(burnish.log, [user("other")])
    await burnish.post({"completion_id": made, "rating": "good"}, **{"x-burnish-user": "ann/b c"})
    erased = await burnish.http.delete("/burnish/users/ann%2Fb%20c")
    assert erased.json() == {"object": "user", "user": "ann/b c", "erased": 1}
    assert burnish.forgotten == ["ann/b c"]
    listed = await burnish.http.get("/burnish/completions")
    assert [each["id"] for each in listed.json()["data"]] == [kept]
    assert (await burnish.http.get("/v1/feedback")).json()["data"] == []
