"""Engines that burnish starts: here a small server that has a helper, as vLLM has, and that can be broken."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts import managed
from burnish.adapters.hosts.managed import MAX_DEATHS, ManagedEngine
from burnish.adapters.hosts.recipes import Recipe
from burnish.system import child_log
from tests.support.patience import within

SERVER = """
import subprocess, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

def there(name):
    return Path(__file__).with_name(name).exists()

helper = subprocess.Popen(["sleep", "600"])
print('[56543] cmd_child_to_router:state:{"state":"loading"}')
print("\\033[36mhelper", helper.pid, "\\033[0m", flush=True)
if there("broken"):
    sys.exit("it has no weights")
if there("slow"):
    time.sleep(600)

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

HTTPServer(("127.0.0.1", int(sys.argv[-1])), Answer).serve_forever()
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    return Recipe("Server", (sys.executable, str(program)), dict(os.environ), "m", tmp_path, "/health")


@asynccontextmanager
async def supervised(engine: ManagedEngine) -> AsyncIterator[None]:
    await engine.start()
    supervising = asyncio.ensure_future(engine.supervise())
    try:
        yield
    finally:
        supervising.cancel()
        with suppress(asyncio.CancelledError):
            await supervising
        await engine.close()


def processes(engine: ManagedEngine) -> list[psutil.Process]:
    """The engine and its helper."""
    found = psutil.Process(engine.status()["pid"])
    return [found, *found.children()]


async def gone(those: list[psutil.Process]) -> None:
    assert not (await asyncio.to_thread(psutil.wait_procs, those, within(10)))[1]


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(within(30)):
        while not happened():
            await asyncio.sleep(0.02)


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def answers(engine: ManagedEngine) -> bool:
    return httpx.get(engine.url, trust_env=False, timeout=within(5)).is_success


async def test_it_ends_with_all_that_it_started(recipe: Recipe, tmp_path: Path) -> None:
    engine = ManagedEngine(recipe, tmp_path / "state" / "engine.log")
    await engine.start()
    assert answers(engine)
    assert engine.status()["state"] == "up"
    ours = processes(engine)
    assert len(ours) == 2
    await engine.close()
    await gone(ours)
    first = child_log.last_lines(tmp_path / "state" / "engine.log")[0]
    assert first.startswith("helper"), "no colours, no JSON"
    await engine.close()


@pytest.mark.parametrize("killed", ["engine", "lifeline"])
async def test_a_killed_one_serves_again_at_its_address(recipe: Recipe, tmp_path: Path, killed: str) -> None:
    engine = ManagedEngine(recipe, tmp_path / "engine.log")
    async with supervised(engine):
        ours, url = processes(engine), engine.url
        victim = ours[0] if killed == "engine" else ours[0].parent()
        assert victim
        victim.kill()
        await until(lambda: engine.status()["restarts"] == 1)
        await gone(ours)
        assert engine.url == url
        assert answers(engine)
        assert engine.trouble is None


async def test_one_that_keeps_dying_is_given_up(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "FIRST_PAUSE_S", 0.01)
    engine = ManagedEngine(recipe, tmp_path / "engine.log")
    async with supervised(engine):
        (tmp_path / "broken").touch()
        os.kill(engine.status()["pid"], signal.SIGKILL)
        await until(lambda: engine.status()["state"] == "given up")
        assert engine.trouble
        assert "it has no weights" in engine.trouble
        assert f"{MAX_DEATHS} times in a row" in engine.trouble
        assert engine.status()["pid"] is None


async def test_one_that_dies_at_its_start_says_what_it_printed_last(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    log = tmp_path / "engine.log"
    log.write_text("$ an older run\nof which nobody wants to read\n")
    with pytest.raises(EngineError, match="Server died while it started") as error:
        await ManagedEngine(recipe, log).start()
    assert "it has no weights" in str(error.value)
    assert "nobody wants" not in str(error.value)
    helper = int(child_log.last_lines(log)[0].split()[1])
    # A process that was killed may run for a moment more.
    await until(lambda: ended(helper))


async def test_a_start_that_is_interrupted_leaves_nothing_behind(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    engine = ManagedEngine(recipe, tmp_path / "engine.log")
    starting = asyncio.ensure_future(engine.start())
    await until(lambda: bool(engine.status()["pid"] and child_log.last_lines(tmp_path / "engine.log")))
    ours = processes(engine)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await gone(ours)


async def test_a_program_that_cannot_be_run_is_named(recipe: Recipe, tmp_path: Path) -> None:
    broken = replace(recipe, program=(str(tmp_path),))
    with pytest.raises(EngineError, match=f"{tmp_path} can't be run: Permission denied"):
        await ManagedEngine(broken, tmp_path / "engine.log").start()


async def test_a_port_that_the_user_names_and_another_has_is_said(recipe: Recipe, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} .* is taken"):
            await ManagedEngine(replace(recipe, fixed_port=port), tmp_path / "engine.log").start()


def test_a_log_that_has_grown_is_emptied_while_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    with child_log.open_log(log) as output:
        output.write(b"x" * (child_log.LIMIT_BYTES + 1))
        output.flush()
        child_log.trim(log)
        output.write(b"later")
    assert log.read_bytes() == b"later"
    assert (tmp_path / "engine.log.1").stat().st_size == child_log.LIMIT_BYTES + 1
