"""Every error of burnish has the form of its client's errors, whatever went wrong, and leaks nothing into the log."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from burnish.app.asgi import own_application
from burnish.proxy.rate_limited import traced
from tests.support.inprocess import behind, calling, logged, serving
from tests.support.patience import within
from tests.support.raw_server import dialled
from tests.support.upstream import Received, Script, reply
from tests.support.wires import CHAT

HI = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ASKED: dict[str, Any] = {
    "/v1/messages": {**HI, "max_tokens": 9},
    "/v1/responses": {"model": "m", "input": "Hi"},
    "/api/chat": HI,
    "/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}
GEMINI_STREAM = "/v1beta/models/m:streamGenerateContent?alt=sse"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def only_chat(answer: Script) -> Script:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        refused = reply(b"{}", status="422 Unprocessable")
        known = answer if request.body != b"[]" else refused
        await (known if request.target == CHAT else reply(b"{}", status="404 Not Found"))(request, writer)

    return script


def breaking_off(said: bytes) -> Script:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.transport.abort() if said.endswith(b"reset") else writer.close()

    return script


def is_native(path: str, error: Any) -> bool:
    """Whether an error has the form of a path's format."""
    if path.startswith("/api/"):
        return isinstance(error["error"], str)
    if path.startswith("/v1beta"):
        return error["error"]["status"] != "" and error["error"]["code"] >= 400
    return error["error"]["message"] != "" and (path != "/v1/messages" or error["type"] == "error")


CUTS = [HEAD + b"content-length: 99\r\n\r\nhalf", HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nreset"]


@pytest.mark.parametrize("said", CUTS)
async def test_a_translated_answer_that_breaks_off_is_a_502(tmp_path: Path, said: bytes) -> None:
    async with behind(tmp_path, only_chat(breaking_off(said))) as (http, _):
        for path, body in ASKED.items():
            got = await http.post(path, json=body | ({"stream": False} if path == "/api/chat" else {}))
            assert (got.status_code, is_native(path, got.json())) == (502, True), (path, got.text)
            assert "broke off" in got.text
            assert got.headers["x-burnish-completion-id"]
        assert [each["outcome"] for each in await logged(http)] == ["failed"] * len(ASKED)
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified", "205 Reset Content"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_translated_answer_without_a_body_is_a_502(
    tmp_path: Path, status: str, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind(tmp_path, only_chat(reply(b"", status=status, headers=""))) as (http, _):
        for path, body in ASKED.items():
            gemini = streamed and path.startswith("/v1beta")
            more = {} if path.startswith("/v1beta") else {"stream": streamed}
            got = await http.post(GEMINI_STREAM if gemini else path, json=body | more)
            assert (got.status_code, is_native(path, got.json())) == (502, True), (path, got.text)
            assert status[:3] in got.text
    assert not caplog.records


async def test_a_list_of_models_that_breaks_off_is_a_502(tmp_path: Path) -> None:
    async with behind(tmp_path, breaking_off(CUTS[0])) as (http, _):
        got = await http.get("/v1/models")
    assert (got.status_code, is_native("/v1/models", got.json())) == (502, True)


@pytest.mark.parametrize("host", ["[::1", "[", "a]b", "[::g]"])
async def test_a_host_that_is_none_is_refused(tmp_path: Path, host: str) -> None:
    asked = f"GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as http:
        async with dialled(str(http.base_url), asked) as (reader, _):
            said = await reader.read(-1)
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b'"host_not_allowed"' in said


QUERY = "key=sk-secret%2Fkey&q=Some+words"
LEAKS = (QUERY, "sk-secret", "Some words")


async def fails(request: Request) -> Response:
    raise ValueError(f"wrong: {request.url}, {dict(request.query_params)}")


async def fails_below(scope: Scope, receive: Receive, send: Send) -> None:
    await fails(Request(scope))


async def fails_late(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    await fails(Request(scope))


async def test_a_fault_is_told_without_the_query(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        serving(tmp_path, upstream="http://127.0.0.1:9") as (url, app),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=within(60)) as http,
    ):
        app.use(own_application([Route("/burnish/status", fails)]), fails_below)
        for path in ("/burnish/status", "/v1/x", "/api/chat", "/v1/messages"):
            method = "GET" if path == "/burnish/status" else "POST"
            got = await http.request(method, f"{path}?{QUERY}")
            assert (got.status_code, is_native(path, got.json())) == (500, True), (path, got.text)
            assert "ValueError" in got.text
        app.use(own_application([]), fails_late)
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get(f"/v1/x?{QUERY}")
    lines = [logging.Formatter().format(traced(each)) for each in caplog.records]
    assert len(lines) == 5
    assert all("Traceback" in line and "ValueError" in line for line in lines)
    assert not [leak for leak in LEAKS if leak in "".join(lines)]
