"""Several worker processes behind one socket: one log, one view of what is live, and none of them is missed."""

from __future__ import annotations

import asyncio
import random
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from burnish.proxy.errors import BurnishError, NotFound, Unavailable
from burnish.proxy.workers.link import Link
from tests.proxy.log.exchanges import until
from tests.support.burnish import Burnish, in_thread, running
from tests.support.lora import write_peft
from tests.support.patience import within
from tests.support.responses import message, response
from tests.support.tiny_gguf import TINY, random_llama, tiny_lora
from tests.support.upstream import Received, Upstream, completion, events, reply, stream, upstream
from tests.support.watching import watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORKERS = 2
QUESTION = {"model": "default", "messages": [{"role": "user", "content": "Hi"}]}


def burnish(tmp_path: Path, engine: Upstream, *flags: str) -> AbstractAsyncContextManager[Burnish]:
    given = ("--workers", str(WORKERS), "--upstream", engine.url, "--model", "mock", *flags)
    return in_thread(running(tmp_path / "data", *given, env={"BURNISH_ENGINE": "none"}))


@dataclass(frozen=True)
class World:
    url: str
    engine: Upstream

    async def counts(self) -> dict[str, int]:
        return dict((await get(self.url + "/burnish/status"))["counts"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with (
        upstream(reply(completion())) as engine,
        burnish(tmp_path_factory.mktemp("workers"), engine) as up,
    ):
        yield World(up.url, engine)


@pytest.fixture
def world(running_world: World) -> World:
    """The shared burnish, before an upstream that answers "Hello!" and has not been asked yet."""
    running_world.engine.script = reply(completion())
    running_world.engine.requests.clear()
    return running_world


class Mortal:
    """A burnish that a test may harm or end: the next test gets it mended, or another one."""

    def __init__(self, data_dir: Path, engine: Upstream) -> None:
        self.engine = engine
        self._data_dir = data_dir
        self._running = AsyncExitStack()
        self._burnish: Burnish | None = None

    async def whole(self) -> Burnish:
        """Return it once all its workers take connections."""
        if self._burnish is None or self._burnish.process.poll() is not None:
            await self.end()
            started = burnish(self._data_dir, self.engine)
            self._burnish = await self._running.enter_async_context(started)
        up = self._burnish
        await until(lambda: sum(map(listens, workers(up))) == WORKERS)
        return up

    async def end(self) -> None:
        await self._running.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mortal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mortal]:
    async with upstream(reply(completion())) as engine:
        mortal = Mortal(tmp_path_factory.mktemp("mortal"), engine)
        yield mortal
        await mortal.end()


def workers(burnish: Burnish) -> list[psutil.Process]:
    return [child for child in psutil.Process(burnish.pid).children() if is_worker(child)]


def is_worker(child: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it ends at this moment
        return "burnish.proxy.workers.worker" in child.cmdline()
    return False


async def killed(worker: psutil.Process) -> None:
    """Kill a worker and wait until it is gone: it may run for a moment more."""
    worker.kill()
    await asyncio.to_thread(worker.wait, within(30))


def listens(worker: psutil.Process) -> bool:
    """Check whether a worker takes new connections, as none does that is stopping."""
    with suppress(psutil.NoSuchProcess):
        return any(each.status == psutil.CONN_LISTEN for each in worker.net_connections("tcp"))
    return False


def client_of(url: str = "", **more: Any) -> httpx.AsyncClient:
    """A client of its own; to load certificates would take it longer than most requests take."""
    return httpx.AsyncClient(base_url=url, timeout=within(60), verify=False, **more)


async def get(url: str) -> dict[str, Any]:
    async with client_of() as client:
        return dict((await client.get(url)).json())


async def ask(url: str, **more: object) -> httpx.Response:
    """Ask over a connection of its own, so that any worker may answer."""
    async with client_of() as client:
        return await client.post(url + "/v1/chat/completions", json=QUESTION | more)


async def rate(url: str, completion_id: str) -> httpx.Response:
    async with client_of() as client:
        rating = {"completion_id": completion_id, "rating": "good"}
        return await client.post(url + "/v1/feedback", json=rating)


async def test_each_answer_can_be_rated_at_once_whichever_worker_gave_it(world: World) -> None:
    before = await world.counts()

    async def talk(rounds: int) -> list[int]:
        found = []
        for _ in range(rounds):
            answer = await ask(world.url)
            rated = await rate(world.url, answer.headers["x-burnish-completion-id"])
            found.append(rated.status_code)
        return found

    found = await asyncio.gather(*(talk(10) for _ in range(8)))
    assert {status for each in found for status in each} == {201}
    after = await world.counts()
    assert [after[name] - before[name] for name in ("completions", "ratings")] == [80, 80]
    unknown = await rate(world.url, "cmpl_00000000000000000000000000")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")


async def test_pages_see_the_answers_of_all_workers_whichever_serves_them(mortal: Mortal) -> None:
    hold, up = asyncio.Event(), await mortal.whole()
    mortal.engine.script = stream(events("one two three"), hold=hold)
    async with watching(up.url) as first, watching(up.url) as second:
        asked = [asyncio.ensure_future(ask(up.url, stream=True)) for _ in range(8)]
        for page in (first, second):
            names = {(await page.next("began"))["id"] for _ in asked}
            while {page.text(name) for name in names} != {"one two three"}:
                await page.next("text")
        seen = first.last_id
        # It takes its answers with it, and perhaps a page.
        await killed(workers(up)[0])
        hold.set()
        ended = await asyncio.gather(*asked, return_exceptions=True)
    whole = {each.headers["x-burnish-completion-id"] for each in ended if isinstance(each, httpx.Response)}
    async with watching(up.url, seen) as third:
        assert (await third.next("hello"))["resumed"]
        assert {(await third.next("answer"))["id"] for _ in whole} == whole
        await until(lambda: {name for each in third.all("erased") for name in each["ids"]} == names - whole)


async def test_a_response_is_continued_whichever_worker_answered_it(mortal: Mortal) -> None:
    in_chat = reply(completion("Hello!"))

    async def chat_only(request: Received, writer: asyncio.StreamWriter) -> None:
        known = request.target == "/v1/chat/completions"
        await (in_chat if known else reply(b"{}", status="404 Not Found"))(request, writer)

    # Not of the world: burnish remembers for minutes that this upstream knows chat only.
    mortal.engine.script, up = chat_only, await mortal.whole()
    previous = None
    for number in range(6):
        asked = {"model": "m", "input": f"Number {number}", "previous_response_id": previous}
        async with client_of() as client:
            answer = await client.post(up.url + "/v1/responses", json=asked)
        previous = answer.json()["id"]
    told = mortal.engine.requests[-1].json()["messages"]
    questions = [each["content"] for each in told if each["role"] == "user"]
    assert questions == [f"Number {n}" for n in range(6)]
    assert len(told) == 11


async def test_a_command_whose_answer_was_dropped_is_looked_up_in_the_one_log(world: World) -> None:
    world.engine.script = reply(completion("Lakes are still."))
    url = world.url + "/v1/chat/completions"
    asked = [{"role": "user", "content": "Lakes?"}, {"role": "assistant", "content": "Lakes are still."}]
    command, following = {"role": "user", "content": "/rl good"}, {"role": "user", "content": "And rivers?"}
    for said in (asked[:1], [*asked, command], [*asked, command, following]):
        async with client_of() as client:  # a connection each: any worker may answer
            await client.post(url, json={"model": "mock", "messages": said})
    assert world.engine.requests[-1].json()["messages"] == [*asked, following]


async def test_commands_about_a_history_that_the_server_holds_work(world: World) -> None:
    before = await world.counts()
    body = orjson.dumps(response(message("Hello!"), response_id="resp_7"))
    world.engine.script = reply(body)
    url = world.url + "/v1/responses"
    async with client_of() as client:
        await client.post(url, json={"model": "mock", "input": "Hi"})
        asked = {"model": "mock", "input": "/rl good", "previous_response_id": "resp_7"}
        rated = (await client.post(url, json=asked)).json()
        assert "burnish: rated good – “Hello!”" in str(rated["output"])
        await client.post(url, json=asked | {"input": "More", "previous_response_id": rated["id"]})
    assert (await world.counts())["good"] - before["good"] == 1
    assert [each.json().get("previous_response_id") for each in world.engine.requests] == [None, "resp_7"]


async def test_a_killed_worker_is_replaced_and_none_outlives_a_killed_burnish(mortal: Mortal) -> None:
    mortal.engine.script, up = reply(completion()), await mortal.whole()
    answered = (await get(up.url + "/burnish/status"))["counts"]["completions"]
    before = {worker.pid for worker in workers(up)}
    assert len(before) == WORKERS
    await killed(psutil.Process(random.Random(0).choice(sorted(before))))
    for _ in range(20):
        assert (await ask(up.url)).status_code == 200
    while len(now := {worker.pid for worker in workers(up)}) < WORKERS:
        await asyncio.sleep(0.05)
    assert len(now & before) == WORKERS - 1
    assert (await get(up.url + "/burnish/status"))["counts"]["completions"] - answered == 20
    orphans = workers(up)
    await asyncio.to_thread(up.kill)
    assert not psutil.wait_procs(orphans, timeout=within(30))[1]


async def test_ctrl_c_lets_a_stream_end_and_logs_it(mortal: Mortal) -> None:
    hold, asked = asyncio.Event(), QUESTION | {"stream": True}
    up = await mortal.whole()
    mortal.engine.script = stream(events("one two three"), hold=hold)
    async with (
        client_of() as client,
        client.stream("POST", up.url + "/v1/chat/completions", json=asked) as answer,
    ):
        stopping, name = None, answer.headers["x-burnish-completion-id"]
        async for part in answer.aiter_raw():
            if stopping is None and part:
                stopping = asyncio.ensure_future(asyncio.to_thread(up.stop))
                await until(lambda: not any(map(listens, workers(up))))
                hold.set()
    assert stopping
    assert await stopping == 0
    with sqlite3.connect(up.data_dir / "burnish.db") as log:
        outcomes = log.execute("SELECT outcome FROM completion WHERE id = ?", (name,)).fetchall()
        assert outcomes == [("complete",)]


async def test_all_workers_change_over_to_a_version_and_none_is_cut(tmp_path: Path) -> None:
    model = random_llama(tmp_path / "tiny.gguf")
    adapter = write_peft(tmp_path / "adapter", tiny_lora(TINY, 1))
    given = ("--workers", str(WORKERS), "--model", str(model))
    async with in_thread(running(tmp_path / "data", *given)) as up:

        async def post(path: str, body: dict[str, Any]) -> int:
            # Over a new connection: an old one may just be closed when it is used again.
            async with client_of(up.url) as client:
                return (await client.post("/burnish/adapters" + path, json=body)).status_code

        async def served(count: int) -> set[str]:
            found = await asyncio.gather(*(ask(up.url, max_tokens=4) for _ in range(count)))
            assert {each.status_code for each in found} == {200}
            names = [each.headers["x-burnish-completion-id"] for each in found]
            logged = [await get(f"{up.url}/burnish/completions/{name}") for name in names]
            return {each["adapter_version"] for each in logged}

        assert await post("", {"path": str(adapter)}) == 201
        assert await served(8) == {0}
        changed = asyncio.Event()

        async def served_meanwhile() -> set[str]:
            found: set[str] = set()
            while not changed.is_set():
                found |= await served(8)
            return found

        asking = asyncio.ensure_future(served_meanwhile())
        assert await post("/1/promote", {"force": True}) == 200
        changed.set()
        assert await asking <= {0, 1}
        assert await served(8) == {1}
        assert await post("/rollback", {"to": 0}) == 200
        assert await served(8) == {0}
        async with client_of(up.url) as client:
            asked = await client.post(
                "/burnish/duels/ask", json={"prompt": "Tell me three things about penguins."}
            )
        assert asked.status_code == 201, "the process with the engine asks both versions"


async def test_every_worker_tunnels_websockets_and_has_them_logged(tmp_path: Path) -> None:
    async def echo(its: ServerConnection) -> None:
        async for said in its:
            await its.send(said)

    async with serve(echo, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        engine = Upstream(f"http://127.0.0.1:{port}", reply(b""))
        async with burnish(tmp_path, engine) as up:
            url = up.url.replace("http", "ws", 1) + "/v1/realtime?model=any"
            ours = [await connect(url, proxy=None) for _ in range(16)]
            for number, each in enumerate(ours):
                await each.send(str(number))
                assert await each.recv() == str(number)
            held = [each for worker in workers(up) for each in worker.net_connections("tcp")]
            tunnels = [each for each in held if each.raddr and each.raddr.port == port]
            for each in ours:
                await each.close()
            async with asyncio.timeout(within(30)):
                while len(found := (await get(up.url + "/burnish/passthrough"))["data"]) < len(ours):
                    await asyncio.sleep(0.05)
    assert len(tunnels) == len(ours)
    told = {(each["path"], each["status"], each["outcome"]) for each in found}
    assert told == {("/v1/realtime", 101, "complete")}


async def test_a_link_answers_each_request_or_says_why_not() -> None:
    started = asyncio.Event()

    async def answer(number: int) -> bytes:
        if number == 0:
            raise NotFound("no such number")
        if number < 0:
            raise ZeroDivisionError("of our own")
        if number == 7:
            started.set()
            await asyncio.Event().wait()
        return bytes(number)

    ours, theirs = (Link({}, {"answer": answer}) for _ in range(2))
    for link, end in zip((ours, theirs), socket.socketpair(), strict=True):
        await link.connect(end)
    large = 1 << 20  # longer than a socket's buffer
    assert await asyncio.gather(*(ours.ask("answer", size) for size in (3, large))) == [
        bytes(3),
        bytes(large),
    ]
    with pytest.raises(NotFound, match="no such number"):
        await ours.ask("answer", 0)
    with pytest.raises(BurnishError, match="burnish failed: ZeroDivisionError: of our own"):
        await theirs.ask("answer", -1)
    unanswered = asyncio.ensure_future(ours.ask("answer", 7))
    await started.wait()
    theirs.close()
    with pytest.raises(Unavailable, match="try again"):
        await unanswered
    with pytest.raises(Unavailable, match="try again"):
        await ours.ask("answer", 3)


async def test_keys_count_the_same_in_every_worker(tmp_path: Path):
    keys = {"BURNISH_API_KEY": "caller", "BURNISH_ADMIN_KEY": "root", "BURNISH_ENGINE": "none"}
    async with upstream(reply(completion())) as engine:
        given = ("--workers", str(WORKERS), "--upstream", engine.url, "--model", "mock")
        async with in_thread(running(tmp_path / "data", *given, env=keys)) as up:
            for _ in range(2 * WORKERS):  # each on a connection of its own
                async with client_of(up.url, headers={"x-burnish-key": "caller"}) as http:
                    asked = await http.post("/v1/chat/completions", json=QUESTION)
                    rating = b'{"completion_id": "%b", "rating": "good"}'
                    rating %= asked.headers["x-burnish-completion-id"].encode()
                    rated = await http.post("/v1/feedback", content=rating)
                    assert rated.json()["given_with"] == "api_key"
                    assert (await http.get("/burnish/completions")).status_code == 403
                    admin = {"x-burnish-key": "root"}
                    assert (await http.get("/burnish/completions", headers=admin)).status_code == 200
