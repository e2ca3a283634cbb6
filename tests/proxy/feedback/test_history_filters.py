"""The filters of the history: over HTTP, in the command, and with their indexes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from burnish.proxy.log import Log
from burnish.proxy.log.listings import Filters, completions
from tests.proxy.feedback.test_routes import Service, refused
from tests.proxy.log.exchanges import assistant, capture, user
from tests.support.inprocess import behind
from tests.support.program import call, said
from tests.support.upstream import completion, reply


async def listed(burnish: Service, **query: Any) -> list[str]:
    answer = await burnish.http.get("/burnish/completions", params=query)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["data"]]


async def rate(burnish: Service, completion_id: str, rating: Any = None, **more: Any) -> str:
    answer = await burnish.post({"completion_id": completion_id, "rating": rating, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_by_rating_and_rater(burnish: Service):
    good, bad, unrated, undone, changed, both = (capture(burnish.log, [user(name)]) for name in "abcdef")
    await rate(burnish, good, "good", rater="ann")
    await rate(burnish, bad, "bad", comment="too long", rater="ann")
    taken_back = await rate(burnish, undone, "bad", comment="no", rater="ann")
    await burnish.http.delete(f"/v1/feedback/{taken_back}")
    await rate(burnish, changed, "bad", rater="ann")
    await rate(burnish, changed, "good", rater="ann")
    await rate(burnish, both, "good", rater="ann")
    await rate(burnish, both, "bad", rater="eve")
    assert await listed(burnish, rating="good") == [changed, good]
    assert await listed(burnish, rating="bad") == [bad]
    assert await listed(burnish, rating="unrated") == [undone, unrated]
    assert await listed(burnish, rating="commented") == [bad]
    assert await listed(burnish, rater="ann") == [both, changed, bad, good]
    assert await listed(burnish, rater="ann", rating="good") == [both, changed, good]
    assert await listed(burnish, rater="eve", rating="bad") == [both]
    assert await listed(burnish, rater="eve", rating="unrated") == [changed, undone, unrated, bad, good]
    assert await listed(burnish, rater="nobody") == []


async def test_an_answer_that_a_turns_rating_covers_is_not_unrated(burnish: Service):
    first = capture(burnish.log, [user("a")], assistant("looking"))
    last = capture(burnish.log, [user("a"), assistant("looking"), {"role": "tool", "content": "x"}], "Done.")
    await rate(burnish, last, "good", scope="turn")
    rows = (await burnish.http.get("/burnish/completions")).json()["data"]
    assert {row["id"]: row["rated"] for row in rows} == {first: "good", last: "good"}
    assert await listed(burnish, rating="unrated") == []
    assert await listed(burnish, rating="good") == [last], "the one that was named"


async def test_by_version_and_in_pages(burnish: Service):
    names = [capture(burnish.log, [user(f"q{n}")], adapter_version=n % 2 and 3) for n in range(8)]
    foreign = capture(burnish.log, [user("cloud")], adapter_version=None)
    for name in (*names, foreign):
        await rate(burnish, name, "bad")
    third, base = names[1::2][::-1], names[::2][::-1]
    assert await listed(burnish, version="3") == await listed(burnish, version="v3") == third
    assert await listed(burnish, version="base") == await listed(burnish, version="0") == base
    assert await listed(burnish, version=3, rating="bad", limit=3) == third[:3]
    assert await listed(burnish, version=3, rating="bad", limit=3, before=third[2]) == third[3:]
    assert await listed(burnish, version=7) == []
    conversation = (await burnish.log.completion(names[0])).conversation_id
    assert await listed(burnish, conversation=conversation, rating="bad", version="base") == [names[0]]


async def test_by_agent_failure_and_words(burnish: Service):
    fine = capture(burnish.log, [user("green tea")], agent="codex", status=200)
    refused = capture(burnish.log, [user("black tea")], agent="codex", status=429)
    cut = capture(burnish.log, [user("coffee")], outcome="cut", status=200)
    never = capture(burnish.log, [user("water")], outcome="failed", status=None)
    left = capture(burnish.log, [user("milk")], outcome="cancelled", status=200)
    assert await listed(burnish, failed="true") == [never, cut, refused]
    assert await listed(burnish, failed="false") == [left, fine]
    assert await listed(burnish, agent="codex") == [refused, fine]
    assert await listed(burnish, agent="codex", failed="true") == [refused]
    assert await listed(burnish, q="black") == [refused]
    assert await listed(burnish, q="tea", failed="false") == [fine]
    rows = (await burnish.http.get("/burnish/completions")).json()["data"]
    assert [row["agent"] for row in rows] == [None, None, None, "codex", "codex"]


@pytest.mark.parametrize(
    ("query", "status", "param", "says"),
    [
        ("rating=lovely", 422, "rating", "good, bad, unrated, commented, not 'lovely'"),
        ("rating=", 422, "rating", "one of good"),
        ("failed=perhaps", 422, "failed", "true or false, not 'perhaps'"),
        ("q=", 422, "q", "at most 200 characters"),
        (f"q={'x' * 201}", 422, "q", "at most 200 characters"),
        ("version=latest", 422, "version", "a version such as 3 or v3, or base, not 'latest'"),
        ("version=-1", 422, "version", "or base"),
        ("version=", 422, "version", "or base"),
        ("ratings=bad", 400, "ratings", "limit, before, conversation, rater, rating, version"),
    ],
)
async def test_a_wrong_filter_is_refused(burnish: Service, query: str, status: int, param: str, says: str):
    assert says in refused(await burnish.http.get(f"/burnish/completions?{query}"), status, param)


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (Filters(rating="good"), "feedback_good"),
        (Filters(rating="bad"), "feedback_bad"),
        (Filters(rating="commented"), "feedback_commented"),
        (Filters(rating="unrated"), "feedback_completion"),
        (Filters(rater="ann"), "feedback_rater"),
        (Filters(rater="ann", rating="bad"), "feedback_rater"),
        (Filters(version=3), "completion_version"),
        (Filters(agent="codex"), "completion_agent"),
        (Filters(failed=True), "completion_failed"),
    ],
    ids=str,
)
async def test_each_filter_has_an_index_and_no_sort(log: Log, tmp_path: Path, filters: Filters, index: str):
    connection, seen = sqlite3.connect(tmp_path / "log" / "log.sqlite3"), list[str]()
    connection.set_trace_callback(seen.append)
    completions(connection, 20, "cmpl_1", filters)
    connection.set_trace_callback(None)
    plan = " | ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {seen[0]}"))
    connection.close()
    assert f"INDEX {index}" in plan
    assert "B-TREE" not in plan


async def test_the_command_filters_and_its_next_page_does_too(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion("Tea."))) as (client, _):
        url, names = str(client.base_url), []
        for question in ("one", "two", "three"):
            body = {"model": "m", "messages": [user(question)]}
            answer = await client.post("/v1/chat/completions", json=body)
            names.append(answer.headers["x-burnish-completion-id"])
            rated = {"completion_id": names[-1], "rating": "bad", "rater": "ann lee"}
            await client.post("/v1/feedback", json=rated)
        filters = ("history", "--rater", "ann lee", "--rating", "bad")
        shown = (await asyncio.to_thread(call, *filters, "-n", "2", url=url)).stdout
        rest = await asyncio.to_thread(said, *filters, "--before", names[1], url=url)
        search = ("history", "--search", "tea", "--agent", "python-httpx", "-n", "1")
        searched = await asyncio.to_thread(call, *search, url=url)
        failures = await asyncio.to_thread(call, "history", "--failed", url=url)
        none = await asyncio.to_thread(call, "history", "--rater", "eve", "--version", "v3", url=url)
        wrong = await asyncio.to_thread(call, "history", "--rating", "lovely", url=url)
        both = await asyncio.to_thread(call, "history", "--passthrough", "--rater", "ann", url=url)
    assert f"more: burnish history --rater 'ann lee' --rating bad --before {names[1]}" in shown
    assert [each["id"] for each in rest["data"]] == names[:1]
    assert f"more: burnish history --agent python-httpx --search tea --before {names[2]}" in searched.stdout
    assert "no answer is like that" in failures.stdout
    assert "no answer is like that; raters: burnish raters; versions: burnish adapters list" in none.stdout
    assert (wrong.returncode, "good, bad, unrated, commented" in wrong.stderr) == (2, True)
    assert (both.returncode, "--rater" in both.stderr) == (2, True)
