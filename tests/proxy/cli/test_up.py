from __future__ import annotations

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from burnish.proxy.cli.up import engines_here
from tests.proxy.test_foreign_engine import Engine
from tests.support.inprocess import listening
from tests.support.llama_server import free_port

# SGLang's own, the least likely of the usual ones to be in use where tests run.
PORT = 30000


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def test_engines_are_found_by_what_they_answer(tmp_path: Path) -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"a web page"})  # type: ignore[operator]

    async with listening(Engine().app()) as engine, listening(app) as page:
        found = await engines_here([port_of(page), free_port(), port_of(engine)])
    assert [(url, each.kind, each.model) for url, each in found] == [(engine, "vllm", "smollm2")]


@pytest.fixture
async def engine() -> AsyncIterator[str]:
    async with listening(Engine().app(), PORT) as url:
        yield url


@pytest.mark.parametrize(
    ("typed", "started"), [(b"\n", f"http://127.0.0.1:{PORT}"), (b"n\n", "the embedded")]
)
async def test_up_asks_at_a_terminal(tmp_path: Path, engine: str, typed: bytes, started: str) -> None:
    said = await up(tmp_path, typed)
    assert f"vLLM with smollm2 answers at {engine}. Use it?" in said
    assert f"starting with {started}" in said


async def test_up_says_what_it_found_where_nobody_can_answer(tmp_path: Path, engine: str) -> None:
    said = await up(tmp_path, None)
    assert f"burnish up --upstream {engine}" in said
    assert "starting with the embedded engine" in said


async def up(tmp_path: Path, typed: bytes | None) -> str:
    """What ``burnish up`` prints until it starts, at a terminal on which something is typed, or without one."""
    command = [sys.executable, "-m", "burnish", "up", "--port", "0", "--data-dir", str(tmp_path / "data")]
    settings = tmp_path / "config.toml"
    settings.touch()
    environment = os.environ | {"BURNISH_CONFIG": str(settings), "COLUMNS": "300"}
    terminal, inside = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL if typed is None else inside,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        cwd=tmp_path,
    )
    assert process.stdout
    said = b""
    try:
        async with asyncio.timeout(60):
            while b"starting with" not in said or not said.endswith(b"\n"):
                piece = await process.stdout.read(4096)
                assert piece, said
                said += piece
                if typed and b"Use it?" in said:
                    os.write(terminal, typed)
                    typed = None
    finally:
        process.terminate()
        await process.communicate()
        os.close(terminal)
        os.close(inside)
    return said.decode()
