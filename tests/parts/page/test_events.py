"""``GET /burnish/events``: what a page gets of answers, ratings, erasures and the status, and after a cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio

from burnish.app.app import running
from burnish.app.serve import server_for
from burnish.config.config import load_config
from tests.support import chat_wire
from tests.support.inprocess import behind, run, serving
from tests.support.patience import within
from tests.support.upstream import Upstream, completion, events, reply, stream
from tests.support.watching import Watcher, watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

Served = tuple[httpx.AsyncClient, Upstream]
CHAT = "/v1/chat/completions"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with behind(tmp_path_factory.mktemp("events"), reply(completion())) as given:
        yield given


async def test_so_many_pages_that_read_nothing_hold_up_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path, upstream="http://127.0.0.1:9") as (url, _):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=within(60)) as http:
            asked = [http.send(http.build_request("GET", "/burnish/events"), stream=True) for _ in range(60)]
            opened = await asyncio.gather(*asked)
            refused = [each for each in opened if each.status_code != 200]
            assert [each.status_code for each in refused] == [503] * 10
            assert "close some of them" in (await refused[0].aread()).decode()
            for each in opened:
                await each.aclose()
            async with asyncio.timeout(within(30)):
                again = 503
                while again == 503:  # burnish notices that they are gone
                    async with http.stream("GET", "/burnish/events") as response:
                        again = response.status_code


@pytest_asyncio.fixture(loop_scope="module")
async def page(served: Served) -> AsyncIterator[Watcher]:
    async with watching(str(served[0].base_url)) as page:
        await page.next("hello")
        yield page


def asking(client: httpx.AsyncClient, question: str, **headers: str) -> asyncio.Task[httpx.Response]:
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}]}
    return asyncio.get_running_loop().create_task(client.post(CHAT, json=asked, headers=headers))


async def test_a_page_sees_an_answer_begin_grow_and_end(served: Served, page: Watcher) -> None:
    client, engine = served
    hold = asyncio.Event()
    engine.script = stream(events("one two three"), hold=hold)
    question = "Count! " + "x" * 600
    headers = {"x-burnish-user": "ann", "user-agent": "claude-cli/2.0.1 (external, cli)"}
    asked = asking(client, question, **headers)
    began = await page.next("began")
    await page.next("text", lambda _: page.text(began["id"]) == "one two three")
    hold.set()
    row = await page.next("answer")
    assert (await asked).headers["x-burnish-completion-id"] == began["id"] == row["id"]
    known = {"caller": "ann", "agent": "claude-code", "model_asked": "m", "version": None, "session": None}
    assert began.items() >= known.items()
    assert (began["prompt"], began["created_at"]) == (question[:500], row["created_at"])
    assert row == (await client.get("/burnish/completions?limit=1")).json()["data"][0]


async def test_a_page_that_comes_late_gets_what_is_under_way(served: Served) -> None:
    client, engine = served
    hold = asyncio.Event()
    engine.script = stream(events("one two three"), hold=hold)
    async with watching(str(client.base_url)) as first:
        asked = asking(client, "Count!")
        began = await first.next("began")
        await first.next("text", lambda _: first.text(began["id"]) == "one two three")
        async with watching(str(client.base_url)) as second:
            assert await second.next("began") == began
            await second.next("text")
            assert second.text(began["id"]) == "one two three"
            hold.set()
            await second.next("answer", id=began["id"])
    await asked


async def test_tools_are_named_once_they_are_called(served: Served, page: Watcher) -> None:
    client, engine = served
    hold = asyncio.Event()
    calls = [chat_wire.called("read", {}), chat_wire.called("run", {}, "c2")]
    whole = chat_wire.whole({"content": "Let me look.", "tool_calls": calls})
    engine.script = stream(chat_wire.chunks(whole), hold=hold)
    asked = asking(client, "Look!")
    began = await page.next("began")

    def tools(content: Any) -> bool:
        return bool(content["answers"].get(began["id"], {}).get("tools") == ["read", "run"])

    await page.next("text", tools)
    hold.set()
    await page.next("answer", id=began["id"])
    await asked


async def test_a_rating_and_its_undo_come_as_a_new_row(served: Served, page: Watcher) -> None:
    client, engine = served
    engine.script = reply(completion())
    name = (await asking(client, "Hi")).headers["x-burnish-completion-id"]
    assert (await page.next("answer", id=name))["rated"] is None
    rating = {"completion_id": name, "rating": "good", "scope": "turn"}
    made = (await client.post("/v1/feedback", json=rating)).json()["id"]
    await page.next("answer", id=name, rated="good")
    await client.delete(f"/v1/feedback/{made}")
    assert (await page.next("answer", id=name, rated=None))["feedback"]


async def test_a_failed_answer_comes_as_a_row(served: Served, page: Watcher) -> None:
    client, engine = served
    engine.script = stream(events("one two", done=False), cut=True)
    with pytest.raises(httpx.RemoteProtocolError):
        await asking(client, "Break off!")
    assert (await page.next("answer"))["outcome"] == "cut"


async def test_an_erased_user_is_gone_from_what_pages_get_again(served: Served) -> None:
    client, engine = served
    engine.script = reply(completion("A secret."))
    async with watching(str(client.base_url)) as page:
        await page.next("hello")
        before = page.last_id
        await asking(client, "A secret?", **{"x-burnish-user": "eve"})
        await page.next("answer")
        await client.delete("/burnish/users/eve")
        assert await page.next("erased") == {"user": "eve"}
    async with watching(str(client.base_url), before) as again:
        assert (await again.next("hello"))["resumed"] is False
        await asyncio.sleep(0)
        assert not again.all("answer")


async def test_a_page_that_was_cut_goes_on_where_it_was(served: Served) -> None:
    client, engine = served
    engine.script = reply(completion())
    async with watching(str(client.base_url)) as page:
        await page.next("hello")
        await asking(client, "One?")
        first = await page.next("answer")
    await asking(client, "Two?")
    async with watching(str(client.base_url), page.last_id) as page:
        assert (await page.next("hello"))["resumed"] is True
        second = await page.next("answer")
        await asking(client, "Three?")
        third = await page.next("answer")
    assert [each["prompt"] for each in (first, second, third)] == ["One?", "Two?", "Three?"]
    assert len(page.all("answer")) == 2, "nothing comes twice"


@pytest.mark.parametrize("given", ["1a2b-7", "-1", "x", "9" * 400, "{own}-99999999", "{own}--1", "{own}-"])
async def test_a_foreign_event_id_begins_anew(served: Served, page: Watcher, given: str) -> None:
    own = page.last_id.partition("-")[0]
    foreign, before = given.replace("{own}", own), time.time()
    async with watching(str(served[0].base_url), **{"last-event-id": foreign}) as other:
        hello = await other.next("hello")
    assert (hello["resumed"], hello["version"]) == (False, (await version(served)))
    assert before - 1 < hello["now"] < time.time() + 1


async def version(served: Served) -> str:
    return str((await served[0].get("/burnish/status")).json()["version"])


async def test_a_head_request_ends(served: Served) -> None:
    answer = await served[0].head("/burnish/events")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_a_rating_of_a_conversation_sends_all_its_rows(served: Served, page: Watcher) -> None:
    client, engine = served
    engine.script = reply(completion("First."))
    messages = [{"role": "user", "content": "A conversation?"}]
    names = []
    for _ in range(2):
        answer = await client.post(CHAT, json={"model": "m", "messages": messages})
        names.append(answer.headers["x-burnish-completion-id"])
        messages += [{"role": "assistant", "content": "First."}, {"role": "user", "content": "And then?"}]
    rating = {"completion_id": names[1], "rating": "bad", "scope": "conversation"}
    await client.post("/v1/feedback", json=rating)
    for name in names:
        await page.next("answer", id=name, rated="bad")


async def test_rows_of_huge_answers_are_short(served: Served, page: Watcher) -> None:
    client, engine = served
    calls = [chat_wire.called(f"tool{n}", {"x": "y" * 500}, f"c{n}") for n in range(2000)]
    said = chat_wire.whole({"content": "z" * 1_000_000, "tool_calls": calls})
    engine.script = reply(orjson.dumps(said))
    asked = {"model": "m", "messages": [{"role": "user", "content": "A lot! " + "?" * 1_000_000}]}
    name = (await client.post(CHAT, json=asked)).headers["x-burnish-completion-id"]
    row = await page.next("answer", id=name)
    listed = (await client.get("/burnish/completions?limit=1")).json()["data"][0]
    whole = (await client.get(f"/burnish/completions/{name}")).json()
    assert row == listed
    assert row["shortened"]
    assert len(orjson.dumps(row)) < 30_000
    assert (len(row["prompt"]), row["prompt"][-1], row["reply"]["content"][-1]) == (500, "…", "…")
    assert row["reply"]["tool_calls"][0]["function"]["name"] == "tool0"
    assert (len(whole["reply"]["content"]), len(whole["reply"]["tool_calls"])) == (1_000_000, 2000)


async def test_only_who_may_read_the_log_may_watch(tmp_path: Path) -> None:
    async with serving(tmp_path, upstream="http://127.0.0.1:9", admin_key="boss-key") as (url, _):
        async with httpx.AsyncClient(base_url=url, timeout=within(60)) as client:
            refused = await client.get("/burnish/events")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_key_needed")
        async with watching(url, authorization="Bearer boss-key") as page:
            await page.next("hello")


async def test_an_open_page_doesnt_hold_burnish_up_when_it_stops(tmp_path: Path) -> None:
    config = load_config({"upstream": "http://127.0.0.1:9", "data_dir": tmp_path / "data", "engine": "none"})
    async with AsyncExitStack() as pages, running(config) as app, asyncio.timeout(within(30)):
        server = server_for(app, config)
        async with run(server) as url:
            server.config.timeout_graceful_shutdown = None  # whatever it waits for, it waits for ever
            page = await pages.enter_async_context(watching(url))
            await page.next("hello")
