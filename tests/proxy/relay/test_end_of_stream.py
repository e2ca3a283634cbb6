"""A client may leave at the end of its format: the answer is complete, teaches, and costs no connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.support.inprocess import behind, logged
from tests.support.leaving import LAGS_S, ONLY_CHAT, STREAMS, lagging, learnable, leave_at_the_end
from tests.support.patience import within
from tests.support.upstream import events, stream
from tests.support.wires import CHAT

NATIVE = (list(STREAMS), ())
TRANSLATED = ([path for path in STREAMS if path not in (CHAT, "/v1/completions", "/api/generate")], ONLY_CHAT)
SHORT, LONG = "Hello there.", "Hello there. " * 8000


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of connections that a slow machine would lose to a limit, nothing could be said."""
    monkeypatch.setattr("burnish.proxy.http.pool.READ_ON_S", within(30))
    monkeypatch.setattr("burnish.proxy.http.origin.KEEP_ALIVE_S", within(60))


@pytest.mark.parametrize(("lag_s", "text"), [*((lag_s, SHORT) for lag_s in LAGS_S), (0.05, LONG)])
@pytest.mark.parametrize(("paths", "known"), [NATIVE, TRANSLATED], ids=["native", "translated"])
async def test_the_end_of_the_format_ends_the_answer(
    tmp_path: Path, lag_s: float, text: str, paths: list[str], known: tuple[str, ...]
) -> None:
    ids: set[str] = set()
    async with lagging(tmp_path, lag_s, known, text) as (http, server, script):

        async def all_at_once() -> None:
            ids.update(await asyncio.gather(*(leave_at_the_end(http, path, rate=True) for path in paths)))
            for _ in paths:
                await script.over.acquire()

        await all_at_once()
        opened = server.connections
        await all_at_once()
        assert (server.connections, server.disconnects) == (opened, 0)
        ended = [(each["outcome"], each["error"]) for each in await logged(http)]
        assert ended == [("complete", None)] * len(ids)
        assert 'outcome="cancelled"' not in (await http.get("/metrics")).text
    assert await learnable(tmp_path) == ids


async def test_what_breaks_off_after_the_end_of_the_format_is_complete(tmp_path: Path) -> None:
    async with behind(tmp_path, stream(events("Hi there."), cut=True)) as (http, _):
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(CHAT, json=STREAMS[CHAT][0])
        assert [(each["outcome"], each["error"]) for each in await logged(http)] == [("complete", None)]


async def test_burnish_stops_while_it_waits_for_the_end_of_a_body(tmp_path: Path) -> None:
    async with asyncio.timeout(within(20)), lagging(tmp_path, 3600) as (http, server, script):
        await leave_at_the_end(http, CHAT)
    await script.over.acquire()
    assert server.disconnects == 1
