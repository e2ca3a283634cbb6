"""An upstream behind an HTTP proxy that the environment names, at a name that nobody here can resolve."""

from __future__ import annotations

import asyncio

import pytest

from burnish.proxy.http.errors import UpstreamTimeout, UpstreamUnreachable
from burnish.proxy.http.origin import ConnectFailed, UpstreamCut, is_proxied
from tests.support.patience import within
from tests.support.raw_server import OK, get, pool, says, server

URL = "http://model.example:8000"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def test_a_request_goes_out_through_the_proxy_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(says(OK)) as proxy, pool() as opened:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        headers = [(b"X-One", b"1"), (b"x-one", b"2")]
        with await opened.send("POST", URL, headers, b"body", path="/v1/x?a=%2Fb") as response:
            assert (response.status, await response.whole()) == (200, b"right")
            assert (b"content-length", b"5") in response.headers
    (request,) = proxy.requests
    head, _, body = request.partition(b"\r\n\r\n")
    first, *others = head.split(b"\r\n")
    assert first == b"POST http://model.example:8000/v1/x?a=%2Fb HTTP/1.1"
    assert sorted(others) == [b"Content-Length: 4", b"Host: model.example:8000", b"X-One: 1", b"x-one: 2"]
    assert body == b"body"


DIRECT = [(no_proxy, URL) for no_proxy in ("model.example", ".example", "*")]
DIRECT += [("", address) for address in ("http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost")]
DIRECT += [("", "https://model.example")]  # no proxy for https is named


@pytest.mark.parametrize(("no_proxy", "address"), [*DIRECT, ("", URL), ("other.example", URL)])
def test_what_is_proxied(monkeypatch: pytest.MonkeyPatch, no_proxy: str, address: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert is_proxied(address) is ((no_proxy, address) not in DIRECT)


async def test_what_goes_wrong_is_what_goes_wrong_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"first_byte_timeout_s": within(0.3), "idle_timeout_s": within(0.3)}
    for fault, error in (
        (says(b"", stays=False), UpstreamUnreachable),
        (says(b""), UpstreamTimeout),
        (says(OK[:-2], stays=False), UpstreamCut),
        (says(OK[:-2]), UpstreamCut),
    ):
        async with server(fault) as proxy, pool(**limits) as opened:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            with pytest.raises(error):
                await get(opened, URL, "POST", b"body")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with pool() as opened:
        with pytest.raises(ConnectFailed, match="NO_PROXY"):
            await get(opened, URL, "POST", b"body")


async def test_an_answer_that_nobody_reads_on_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = asyncio.Event()

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(OK[:-2])
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return False

    async with server(answer) as proxy, pool() as opened:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with await opened.send("POST", URL, [], b"body") as response:
            assert await response.read() == b"rig"
        async with asyncio.timeout(within(30)):
            await gone.wait()
