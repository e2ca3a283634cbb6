"""Turns where there are more requests than an upstream is given at a time, and TLS with a server of our own."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from burnish.proxy.http.connection import HIGH_WATER_BYTES
from burnish.proxy.http.errors import Unavailable
from burnish.proxy.http.origin import ConnectFailed, UpstreamCut
from burnish.proxy.http.pool import Pool
from tests.support.certificates import authority, server_context
from tests.support.patience import within
from tests.support.raw_server import OK, get, pool, says, server


async def test_who_came_first_is_asked_first_and_no_more_than_that_at_a_time() -> None:
    under_way = most = 0
    awaited, full = 1, asyncio.Event()

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == awaited:
            full.set()
        await full.wait()
        await asyncio.sleep(0.005)
        under_way -= 1
        writer.write(OK)
        return True

    async def ask(opened: Pool, place: int) -> None:
        with await opened.send("GET", upstream.url, [], None, path=f"/{place}") as response:
            await response.whole()

    async with server(answer) as upstream, pool(max_connections=1) as opened:
        await asyncio.gather(*(ask(opened, place) for place in range(20)))
        assert [int(request.split(b" ")[1][1:]) for request in upstream.requests] == list(range(20))
        assert upstream.connections == 1
    async with server(answer) as upstream, pool(max_connections=3) as opened:
        most, awaited = 0, 3
        full.clear()
        async with asyncio.timeout(within(30)):
            await asyncio.gather(*(ask(opened, place) for place in range(20)))
        assert (most, upstream.connections) == (3, 3)


async def test_whose_turn_does_not_come_is_told_to_try_again() -> None:
    async with server(says(OK)) as upstream, pool(max_connections=1, queue_timeout_s=0.1) as opened:
        with await opened.send("GET", upstream.url, [], None) as response:
            with pytest.raises(Unavailable, match="raise max_connections") as refused:
                await get(opened, upstream.url)
            assert (b"retry-after", b"1") in refused.value.headers
            assert await response.whole() == b"right"
        assert await get(opened, upstream.url) == (200, b"right")


async def test_one_upstream_that_is_busy_holds_up_no_other() -> None:
    async with server(says(OK)) as busy, server(says(OK)) as other, pool(max_connections=1) as opened:
        with await opened.send("GET", busy.url, [], None):
            assert await get(opened, other.url) == (200, b"right")


@pytest.mark.parametrize("steps", range(8))
async def test_a_turn_that_comes_to_one_who_has_just_left_goes_to_the_next(steps: int) -> None:
    async with server(says(OK)) as upstream, pool(max_connections=1, queue_timeout_s=within(5)) as opened:
        with await opened.send("GET", upstream.url, [], None) as response:
            leaves = asyncio.ensure_future(get(opened, upstream.url))
            stays = asyncio.ensure_future(get(opened, upstream.url))
            await asyncio.sleep(0.01)
            await response.whole()
        for _ in range(steps):
            await asyncio.sleep(0)
        leaves.cancel()
        assert await stays == (200, b"right")
        assert await get(opened, upstream.url) == (200, b"right")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority(folder)
    return folder


@pytest.fixture
def tls(certificates: Path) -> ssl.SSLContext:
    """A server's side; whoever is asked by the name localhost has the right certificate."""
    return server_context(certificates)


@pytest.fixture
def trusted(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "authority.pem"))


async def test_a_certificate_that_nobody_vouches_for(tls: ssl.SSLContext) -> None:
    async with server(says(OK), tls) as upstream, pool() as opened:
        with pytest.raises(ConnectFailed, match=r"not trusted: .*SSL_CERT_FILE"):
            await get(opened, upstream.url)
        assert upstream.requests == []


@pytest.mark.usefixtures("trusted")
async def test_a_certificate_for_another_name(tls: ssl.SSLContext) -> None:
    async with server(says(OK), tls) as upstream, pool() as opened:
        with pytest.raises(ConnectFailed, match=r"not trusted: .*127\.0\.0\.1"):
            await get(opened, upstream.url.replace("localhost", "127.0.0.1"))


@pytest.mark.usefixtures("trusted")
async def test_connections_are_kept_and_the_server_is_asked_for_by_name(tls: ssl.SSLContext) -> None:
    names: list[str | None] = []
    tls.sni_callback = lambda _, name, __: names.append(name)
    tls.set_alpn_protocols(["h2", "http/1.1"])
    async with server(says(OK), tls) as upstream, pool() as opened:
        for _ in range(3):
            assert await get(opened, upstream.url, "POST", b"x" * 200_000) == (200, b"right")
        assert upstream.connections == 1
    assert names == ["localhost"]


async def test_a_server_without_tls_and_one_that_never_shakes_hands() -> None:
    async def silent(request: bytes, writer: asyncio.StreamWriter) -> bool:
        return False

    # The second waits for the end of a head, which no handshake has.
    for answer, says_why in ((says(OK), None), (silent, r"within 0\.3 s")):
        async with server(answer) as upstream, pool(connect_timeout_s=0.3) as opened:
            with pytest.raises(ConnectFailed, match=says_why):
                await get(opened, upstream.url.replace("http:", "https:"))


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("said", [True, False], ids=["close_notify", "cut"])
async def test_an_answer_that_ends_with_the_connection_is_whole_only_if_tls_says_so(
    tls: ssl.SSLContext, said: bool
) -> None:
    """Whoever sits in between can end a TCP connection, and would end the answer where he likes."""

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nfour")
        await begun.wait()
        writer.close() if said else writer.transport.abort()
        return False

    begun = asyncio.Event()
    async with server(answer, tls) as upstream, pool() as opened, asyncio.timeout(within(20)):
        with await opened.send("GET", upstream.url, [], None) as response:
            assert await response.read() == b"four"
            begun.set()
            if said:
                assert await response.whole() == b""
            else:
                with pytest.raises(UpstreamCut, match="broke off"):
                    await response.whole()


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_slow_reader_slows_the_upstream_and_gets_it_all(tls: ssl.SSLContext, over_tls: bool) -> None:
    size, sent, idle_s = 48 * 2**20, 0, within(0.3)

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // 2**14):
            writer.write(b"a" * 2**14)
            await writer.drain()
            sent += 2**14
        return True

    async with server(answer, tls if over_tls else None) as upstream, pool(idle_timeout_s=idle_s) as opened:
        with await opened.send("GET", upstream.url, [], None) as response:
            await asyncio.sleep(2 * idle_s)  # longer than an upstream may be silent: it is not the one who is
            assert sent < size // 2
            got = len(await response.read())
            assert got < HIGH_WATER_BYTES + 2**19
            while part := await response.read():
                got += len(part)
            assert got == size
