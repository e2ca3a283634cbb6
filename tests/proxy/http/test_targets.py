"""A request names a path, never a server, whatever stands in its first line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from tests.support.inprocess import behind, calling, serving
from tests.support.patience import within
from tests.support.raw_server import OK, dialled, says, server
from tests.support.upstream import reply

EVIL = "evil.example"
TARGETS = ["*", f"*.{EVIL}/x", f"*@{EVIL}/x", f"*:1@{EVIL}/v1/messages", f"%2f@{EVIL}/x", f"http://{EVIL}/x"]
LINES = [f"{method} {target}" for method in ("GET", "POST", "OPTIONS") for target in TARGETS]


async def answer_to(url: str, line: str, more: str = "") -> tuple[bytes, bytes]:
    """Return the head of the answer to a request that begins with a line, and the body."""
    asked = f"{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n{more}\r\n"
    async with dialled(url, asked.encode()) as (reader, _), asyncio.timeout(within(30)):
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    return head, body


async def test_a_target_that_is_no_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with server(says(OK)) as proxy, behind(tmp_path / "direct", reply(b"")) as (direct, asked):
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        away = {"upstream": "http://llm.example/v1", "upstream_api_key": "sk-upstream"}
        async with serving(tmp_path / "proxied", **away) as (proxied, _):
            for line in LINES:
                for url in (str(direct.base_url), proxied):
                    head, body = await answer_to(url, line)
                    assert head.startswith(b"HTTP/1.1 400 "), (line, head)
                    assert orjson.loads(body)["error"]["code"], (line, body)
            paths = [f"/*@{EVIL}/x", f"//{EVIL}/x", f"/x?a=//{EVIL}/@"]
            for path in paths:
                head, _ = await answer_to(proxied, f"POST {path}")
                assert head.startswith(b"HTTP/1.1 200 "), (path, head)
    asked_for = [request.split(b" ")[1].decode() for request in proxy.requests]
    assert asked_for == [f"http://llm.example{path}" for path in paths]
    assert asked.requests == []
    assert not caplog.records


@pytest.mark.parametrize("line", ["CONNECT evil.example:443", "CONNECT localhost:443"])
async def test_burnish_is_no_tunnel(tmp_path: Path, line: str) -> None:
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as http:
        head, body = await answer_to(str(http.base_url), line)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert "CONNECT" in orjson.loads(body)["error"]["message"]


async def test_what_is_not_http_is_refused_in_the_envelope(tmp_path: Path) -> None:
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as http:
        async with dialled(str(http.base_url), b"\x16\x03\x01 hello\r\n\r\n") as (reader, _):
            head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert orjson.loads(body)["error"]["type"] == "invalid_request_error"
