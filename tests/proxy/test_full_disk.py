"""burnish starts on a full disk, as after a reboot: answers go on, and the log catches up when there is room."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.inprocess import behind
from tests.support.patience import within
from tests.support.upstream import completion, reply, upstream

LIMIT_S = within(60)
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "What is tea?"}]}
LAST = {"last": True, "rating": "good"}


@asynccontextmanager
async def started_on_a_full_disk(
    data: Path, upstream_url: str
) -> AsyncIterator[tuple[httpx.AsyncClient, int]]:
    """Start burnish so that no file of it can grow; gives a client, and its process ID."""
    up = f"{sys.executable} -m burnish up --port 0 --data-dir {data} --upstream {upstream_url}".split()
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'ulimit -S -f 0; exec "$@"', "sh", *up),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"BURNISH_ENGINE": "none", "NO_COLOR": "1", "COLUMNS": "200"},
    )
    assert process.stdout
    try:
        async with asyncio.timeout(LIMIT_S):
            printed = await process.stdout.readuntil(b"burnish is up")
            url = re.search(rb"http\S+", await process.stdout.readline())
        assert b"Traceback" not in printed
        assert url
        async with httpx.AsyncClient(base_url=url[0].decode(), trust_env=False, timeout=LIMIT_S) as http:
            yield http, process.pid
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit changes the limit of another process")
async def test_it_starts_answers_and_catches_up(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion("Before."))) as (http, server):
        await http.post("/v1/chat/completions", json=QUESTION)
    async with (
        upstream(reply(completion("Tea is a drink."))) as server,
        started_on_a_full_disk(tmp_path / "data", server.url) as (http, pid),
    ):
        answer = await http.post("/v1/chat/completions", json=QUESTION)
        assert answer.json()["choices"][0]["message"]["content"] == "Tea is a drink."
        health = (await http.get("/healthz")).json()
        assert (health["status"], "the disk is full" in health["trouble"][0]) == ("degraded", True)
        for refused in (await http.post("/v1/feedback", json=LAST), await http.get("/burnish/completions")):
            assert refused.status_code == 503
            assert "the disk is full" in refused.json()["error"]["message"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        async with asyncio.timeout(LIMIT_S):
            while (await http.get("/healthz")).json()["status"] != "ok":
                await asyncio.sleep(0.05)
        assert (await http.post("/v1/feedback", json=LAST)).status_code == 201
        logged = (await http.get("/burnish/completions")).json()["data"]
        assert [each["reply"]["content"] for each in logged] == ["Tea is a drink.", "Before."]
        assert [each["rating"] for each in logged] == [1.0, None]
