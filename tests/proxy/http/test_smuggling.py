"""What a client hides behind a request never reaches the upstream as one: burnish frames anew what it passes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from tests.support.inprocess import behind
from tests.support.raw_server import dialled
from tests.support.upstream import Received

CHAT, FILES = "/v1/chat/completions", "/v1/files"
AT_ONCE = 20
JSON = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
HIDDEN = b"POST /v1/load_lora_adapter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(JSON), JSON)
BOTH = b"0\r\n\r\n" + HIDDEN
"""Nothing to a reader of chunks, with a request behind it; a body to a reader of lengths."""
CL, TE = b"Content-Length: %d\r\n" % len(BOTH), b"Transfer-Encoding: chunked\r\n"
LENGTHS = [
    b"+5", b"-5", b"0x5", b"5, 5", b"5,6", b"5 6", b"\x0b5", b"5\0", b"1e1", b"", b"18446744073709551621", b"5.0", b"a",
]  # fmt: skip
CODINGS = [
    b"Chunked", b"chunked, chunked", b"identity", b"identity, chunked", b"chunked, identity", b"xchunked", b"cow", b"",
    b"\x0bchunked", b"chunked\x0b", b"chunked\0", b"chunked;q=1", b"gzip, chunked", b'"chunked"', b"chunked,",
    b",chunked",
]  # fmt: skip
CODING_LINES = [
    b"Transfer-Encoding : chunked\r\n", b" Transfer-Encoding: chunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n",
    b"Transfer-Encoding:\n chunked\r\n", b"Transfer-Encoding\0: chunked\r\n", b"Transfer_Encoding: chunked\r\n",
    b"X: y\nTransfer-Encoding: chunked\r\n", b"X: y\rTransfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked\n",
    b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", b"X: y\r\n Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", b"\x0bTransfer-Encoding: chunked\r\n", b": y\r\n",
    b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", b"Connection: Content-Length\r\n",
]  # fmt: skip
BAD_CHUNKS = [
    b"0x5\r\nhello\r\n0\r\n\r\n", b"+5\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n",
    b"5\nhello\n0\n\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhelloo\r\n0\r\n\r\n", b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    b"fffffffffffffffff5\r\nhello\r\n0\r\n\r\n", b"\r\n0\r\n\r\n", b"00\r\n\r\n", b"0\n\r\n", b"0;x\r\n\r\n",
    b"0\r\nContent-Length: 99\r\n\r\n", b"0\r\nTransfer-Encoding: x\r\nHost: a\r\n\r\n", b"0\r\nX: y\n\n\r\n",
    b"0\r\n\n",
]  # fmt: skip
H2C, WEBSOCKET = (b"Connection: upgrade\r\nUpgrade: %b\r\n" % other for other in (b"h2c", b"websocket"))


def framed(lines: bytes, body: bytes, line: bytes = b"POST PATH HTTP/1.1") -> bytes:
    return b"%b\r\nHost: localhost\r\n%b\r\n%b" % (line, lines, body)


SAID = [
    framed(CL + TE, BOTH), framed(TE + CL, BOTH), framed(CL + TE, CHUNKS + HIDDEN), framed(TE + TE, BOTH),
    framed(b"Content-Length: 5\r\n" + CL, BOTH), framed(CL + b"Content-Length: 5\r\n", BOTH), framed(CL + CL, BOTH),
    framed(b"Content-Length : 5\r\n", BOTH), framed(b"Content-Length:\r\n 5\r\n", BOTH), framed(b"", HIDDEN),
    *(framed(b"Content-Length: %b\r\n" % length, BOTH) for length in LENGTHS),
    *(framed(b"Content-Length: %b\r\n" % length + TE, BOTH) for length in LENGTHS),
    *(framed(b"Transfer-Encoding: %b\r\n" % coding, BOTH) for coding in CODINGS),
    *(framed(CL + b"Transfer-Encoding: %b\r\n" % coding, BOTH) for coding in CODINGS),
    *(framed(CL + line, BOTH) for line in CODING_LINES),
    *(framed(TE, chunks + HIDDEN) for chunks in BAD_CHUNKS),
    *(framed(b"Expect: 100-continue\r\n" + framing, BOTH) for framing in (CL, TE, CL + TE)),
    framed(b"Expect: 200-ok\r\n" + CL, BOTH), framed(b"Host: evil.example\r\n" + CL, BOTH),
    *(framed(CL, BOTH, b"%b PATH HTTP/1.1" % method) for method in (b"GET", b"HEAD", b"OPTIONS", b"QUERY", b"PRI")),
    *(framed(TE, BOTH, b"%b PATH HTTP/1.1" % method) for method in (b"GET", b"HEAD", b"DELETE")),
    *(framed(CL, BOTH, b"POST PATH HTTP/%b" % version) for version in (b"0.9", b"1.0", b"1.2", b"2.0", b"1.1 ", b"1.")),
    framed(TE, BOTH, b"POST PATH HTTP/1.0"), framed(CL, BOTH, b"POST PATH"),
    framed(CL, BOTH, b"POST PATH\nX: y HTTP/1.1"),
    framed(b"", HIDDEN, b"POST PATH HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /sleep HTTP/1.1"),
    *(framed(H2C + framing, BOTH) for framing in (CL, TE, CL + TE)), framed(WEBSOCKET + CL, BOTH),
    *(framed(WEBSOCKET + framing, BOTH, b"GET PATH HTTP/1.1") for framing in (CL, TE, CL + TE)),
    framed(WEBSOCKET, HIDDEN, b"GET PATH HTTP/1.1"), framed(H2C, HIDDEN, b"GET PATH HTTP/1.1"),
]  # fmt: skip


async def echo(request: Received, writer: asyncio.StreamWriter) -> None:
    said = orjson.dumps({"target": request.target, "mark": request.header("x-mark")})
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
    writer.write(b"content-length: %d\r\n\r\n%b" % (len(said), b"" if request.method == "HEAD" else said))
    await writer.drain()


async def say(url: str, said: bytes) -> bytes:
    async with dialled(url, said) as (reader, _):
        return await reader.readline()


@pytest.mark.parametrize("path", [CHAT, FILES])
async def test_no_request_goes_up_within_another(tmp_path: Path, path: str) -> None:
    async with behind(tmp_path, echo) as (http, server):
        for at in range(0, len(SAID), AT_ONCE):
            said = [each.replace(b"PATH", path.encode()) for each in SAID[at : at + AT_ONCE]]
            answers = await asyncio.gather(*(say(str(http.base_url), each) for each in said))
            assert {answer[:9] for answer in answers} == {b"HTTP/1.1 "}
            # Whatever is left over on a kept connection would be taken for the beginning of these.
            following = [http.get(f"/v1/files/{n}", headers={"x-mark": str(n)}) for n in range(AT_ONCE)]
            for number, answer in enumerate(await asyncio.gather(*following)):
                assert answer.json() == {"target": f"/v1/files/{number}", "mark": str(number)}, said
        passed_on = [request for request in server.requests if request.header("x-mark") is None]
        for request in passed_on:
            assert "load_lora" not in request.target and "sleep" not in request.target, request
            lines = [(name.lower(), value) for name, value in request.headers]
            framing = [value for name, value in lines if name in ("content-length", "transfer-encoding")]
            assert len(framing) <= 1, request
            assert all(value.isdecimal() or value == "chunked" for value in framing), request
            assert not any(set(name + value) & set("\r\n\0") or name != name.strip() for name, value in lines)
        assert passed_on
