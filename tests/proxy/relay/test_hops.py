"""What stands before or behind burnish: another burnish, a client or a proxy that speaks HTTP/1.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.inprocess import behind, calling, logged
from tests.support.raw_server import dialled
from tests.support.upstream import Script, completion, events, reply, stream
from tests.support.wires import CHAT

BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
HEAD = b"POST /v1/chat/completions HTTP/1.0\r\nhost: localhost\r\n"
OLD = HEAD + b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
STREAM = events("Hi there.")


async def test_of_two_burnishes_the_one_that_a_client_talks_to_names_its_answer(tmp_path: Path) -> None:
    async with (
        behind(tmp_path / "inner", stream(STREAM)) as (inner, _),
        calling(tmp_path / "outer", upstream=str(inner.base_url)) as outer,
    ):
        got = await outer.post(CHAT, content=BODY)
        (name,) = got.headers.get_list("x-burnish-completion-id")
        rated = await outer.post("/v1/feedback", json={"completion_id": name, "rating": "good"})
        assert rated.status_code == 201
        assert [each["id"] for each in await logged(outer)] == [name]
        assert [each["id"] for each in await logged(inner)] != [name]


@pytest.mark.parametrize("path", [CHAT, "/v1/files"])
async def test_an_upstream_cannot_speak_for_burnish(tmp_path: Path, path: str) -> None:
    forged = "X-Burnish-Completion-Id: cmpl_x\r\nx-burnish-instructions: 9\r\n"
    async with behind(tmp_path, reply(completion(), headers=forged)) as (http, _):
        got = await http.post(path, content=BODY)
        names = [name for name in got.headers if name.startswith("x-burnish-")]
        assert names == (["x-burnish-completion-id"] if path == CHAT else [])
        assert "cmpl_x" not in got.headers.values()


WHOLE = completion()
ANSWERS: dict[str, tuple[Script, bytes]] = {
    "streamed": (stream(STREAM), b"".join(STREAM)),
    "with trailers": (stream(STREAM, trailers=b"x-sum: 1\r\n"), b"".join(STREAM)),
    "with a length": (reply(WHOLE), WHOLE),
    "empty": (reply(b"", status="204 No Content", headers=""), b""),
}


@pytest.mark.parametrize(("script", "body"), ANSWERS.values(), ids=ANSWERS)
async def test_an_http_1_0_client_gets_no_chunks(tmp_path: Path, script: Script, body: bytes) -> None:
    async with behind(tmp_path, script) as (http, _), dialled(str(http.base_url), OLD) as (reader, _):
        head, _, got = (await reader.read(-1)).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"\r\nconnection: close" in head
    assert got == body


async def test_an_http_1_0_client_sees_that_its_answer_was_cut(tmp_path: Path) -> None:
    half = stream(STREAM[:2], cut=True)
    async with behind(tmp_path, half) as (http, _), dialled(str(http.base_url), OLD) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)
        assert [each["outcome"] for each in await logged(http)] == ["cut"]


async def test_lists_hold_the_beginning_of_an_error(tmp_path: Path) -> None:
    page = reply(b"<p>" + b"No. " * 2000, status="502 Bad Gateway", headers="content-type: text/html\r\n")
    async with behind(tmp_path, page) as (http, _):
        await http.post(CHAT, content=BODY)
        (listed,) = (await http.get("/burnish/completions")).json()["data"]
        (whole,) = await logged(http)
    assert len(listed["error"]) == 200
    assert whole["error"].startswith(listed["error"][:-1])
    assert len(whole["error"]) > 8000
