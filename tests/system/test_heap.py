"""What is far too large is passed through or refused, and the memory of the whole program hardly grows."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.burnish import in_thread, running
from tests.support.dialects import DIALECTS, Dialect, tool, user
from tests.support.patience import within
from tests.support.recorded import RECORDED, Recorded
from tests.support.upstream import Upstream, reply, stream, upstream

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MIB = 2**20
LARGE = 100 * MIB
PIECE = b"x" * 2**16
THROUGH_MIB = 32
"""What may be held of something that is only passed through."""
LOGGED_MIB = 192
"""What the log may hold of an answer: 32 MiB of it, as it came and as one piece."""

MESSAGES = 100_000
MESSAGES_MIB = 190
"""200 MB for so many messages in one request, of 4 MB."""

STREAMS = {name: each for name, each in RECORDED.items() if not each.fails and len(each.parts) > 1}


@dataclass
class World:
    """burnish as a process of its own, before a server that says what it is told to."""

    http: httpx.AsyncClient
    pid: int
    server: Upstream

    async def read(self, path: str, **body: Any) -> tuple[int, int, str]:
        """Ask; return status and length of the answer, and the name that it has in the log."""
        async with self.http.stream("POST", path, **body) as answer:
            size = sum([len(part) async for part in answer.aiter_raw()])
        return answer.status_code, size, answer.headers.get("x-burnish-completion-id", "")

    def status(self, field: str) -> int:
        """A figure of the process's memory, in MiB."""
        said = Path(f"/proc/{self.pid}/status").read_text()
        return int(said.partition(f"{field}:")[2].split()[0]) // 1024

    @contextmanager
    def growing_less_than(self, limit_mib: int) -> Iterator[None]:
        """See that the most memory that is used meanwhile is not much more than before."""
        before = self.status("VmRSS")
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # the peak is what there is now
        yield
        assert self.status("VmHWM") - before < limit_mib


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        upstream(reply(b"{}")) as server,
        in_thread(running(tmp_path, "--upstream", server.url, env={"BURNISH_ENGINE": "none"})) as burnish,
        httpx.AsyncClient(base_url=burnish.url, trust_env=False, timeout=within(120)) as http,
    ):
        here = World(http, burnish.pid, server)
        server.script = stream([b"{}"], content_type="text/plain")
        await here.read("/v1/chat/completions", json=DIALECTS["chat"].body((user("Hi."),)))
        yield here


async def test_what_is_no_completion_is_never_held(here: World) -> None:
    async def upload() -> AsyncIterator[bytes]:
        for _ in range(LARGE // len(PIECE)):
            yield PIECE

    with here.growing_less_than(THROUGH_MIB):
        assert (await here.read("/v1/files", content=upload()))[:2] == (200, 2)
    here.server.script = stream([PIECE] * (LARGE // len(PIECE)), content_type="text/plain")
    with here.growing_less_than(THROUGH_MIB):
        assert (await here.read("/v1/files", content=b""))[:2] == (200, LARGE)


async def test_a_hundred_megabytes_of_tool_output_are_refused_in_the_formats_words(here: World) -> None:
    asked = (user("Read it."), tool("a line of a log \n" * (LARGE // 17)))
    for name, dialect in DIALECTS.items():
        with here.growing_less_than(THROUGH_MIB):
            answer = await here.http.post(dialect.path, content=orjson.dumps(dialect.body(asked)))
        assert answer.status_code == 413, name
        error = answer.json()["error"]
        assert "max_body_bytes" in (error if isinstance(error, str) else error["message"]), name


async def test_a_request_of_a_hundred_thousand_messages(here: World) -> None:
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"r {n}"} for n in range(MESSAGES)]
    body = orjson.dumps({"model": "m", "messages": messages})
    with here.growing_less_than(MESSAGES_MIB):
        status, _, name = await here.read("/v1/chat/completions", content=body)
        async with asyncio.timeout(within(120)):
            row: dict[str, Any] = {}
            while row.get("id") != name:
                row = (await here.http.get("/burnish/completions?limit=1")).json()["data"][0]
    assert (status, row["prompt"]) == (200, f"r {MESSAGES - 2}")


@pytest.mark.parametrize("surface", STREAMS)
async def test_a_hundred_megabytes_of_stream_go_through_and_the_log_says_so(
    here: World, surface: str
) -> None:
    recorded: Recorded = STREAMS[surface]
    dialect: Dialect = DIALECTS[recorded.surface]
    middle = recorded.parts[len(recorded.parts) // 3] * 500
    count = LARGE // len(middle)
    here.server.script = stream([middle] * count, content_type=recorded.content_type)
    with here.growing_less_than(LOGGED_MIB):
        asked = dialect.body((user("Hi."),)) | {"stream": True}
        status, size, name = await here.read(recorded.path, json=asked)
        record = (await here.http.get(f"/burnish/completions/{name}")).json()
    assert (status, size, record["outcome"]) == (200, count * len(middle), "cut")
    assert "only the first" in record["error"]
