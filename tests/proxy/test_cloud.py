"""How burnish runs litellm: what it says if it can't, and that it starts it again.

tests/engines/test_litellm_real.py asks a real litellm. Here a program in its place answers on the socket that it gets.
"""

from __future__ import annotations

import asyncio
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from burnish.config.config import load_config
from burnish.proxy import cloud
from burnish.proxy.cloud import ProviderRoute, litellm, with_clouds
from burnish.proxy.http.errors import ConfigError
from tests.proxy.log.exchanges import until
from tests.support.patience import within

PROGRAM = """
import http.server, json, os, pathlib, socket, sys, threading
if pathlib.Path({broken!r}).exists():
    sys.exit("no memory")
given = json.loads(sys.stdin.readline())
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps([os.getpid(), given, dict(os.environ)]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=given["socket"])
threading.Thread(target=server.serve_forever, daemon=True).start()
print("{{}}", flush=True)
sys.stdin.read()
"""
ROUTE = ProviderRoute("bedrock", "claude", ["claude"], "sk-provider")
Interpreter = Callable[[Path], Path]


def bare(folder: Path) -> Path:
    venv.create(folder / "bare", symlinks=True)
    return folder / "bare" / "bin" / "python"


def script(path: Path, commands: str) -> Path:
    path.write_text(f"#!/bin/sh\n{commands}\n")
    path.chmod(0o700)
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """While this exists, the program in the place of litellm doesn't start."""
    return tmp_path / "broken"


@pytest.fixture
def interpreter(tmp_path: Path, broken: Path) -> Path:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(broken=str(broken)))
    return script(tmp_path / "python", f"exec {sys.executable} {program}")


@pytest.mark.parametrize(
    ("python", "says"),
    [
        (
            lambda folder: folder / "nowhere" / "python",
            r"litellm.python: .*/nowhere/python can't be run \(No such file.*\): name the interpreter",
        ),
        (
            bare,
            r"litellm:bedrock needs litellm, which isn't installed .*bare/bin/python -m pip install .*litellm!=1.107",
        ),
        (
            lambda folder: script(folder / "python", "echo out of memory >&2"),
            r"while it started, litellm ended .status 0.\. Its log .*litellm.log ends with: out of memory",
        ),
    ],
)
async def test_why_it_does_not_start(tmp_path: Path, python: Interpreter, says: str) -> None:
    settings = {"upstream": "litellm:bedrock/x", "litellm": {"python": python(tmp_path)}}
    before = psutil.Process().children()
    with pytest.raises(ConfigError, match=says):
        async with with_clouds(load_config({"data_dir": tmp_path, **settings})):
            pass
    assert psutil.Process().children() == before


@pytest.mark.parametrize("main", ["http://127.0.0.1:9", None], ids=["an upstream", "the embedded engine"])
async def test_one_that_starts_late_does_not_keep_the_others(
    tmp_path: Path, interpreter: Path, monkeypatch: pytest.MonkeyPatch, main: str | None
) -> None:
    monkeypatch.setattr(cloud, "OTHERS_WAIT_S", 0.01)
    gate = tmp_path / "gate"
    late = script(tmp_path / "late", f'while [ ! -e {gate} ]; do sleep .01; done; exec {interpreter} "$@"')
    further = {"cloud": {"url": "litellm:bedrock/x", "models": ["x"]}}
    settings: dict[str, Any] = {"upstream": main, "litellm": {"python": late}, "upstreams": further}
    before = psutil.Process().children()
    async with with_clouds(load_config({"data_dir": tmp_path, **settings})) as config:
        assert not gate.exists(), "the others can answer already"
        place = config.local("cloud")
        assert place
        waiting = asyncio.ensure_future(asked(place.url))
        await asyncio.sleep(0)
        gate.touch()
        async with asyncio.timeout(within(30)):
            await waiting
    async with with_clouds(load_config({"data_dir": tmp_path, **settings})):
        gate.unlink()
    assert psutil.Process().children() == before


async def asked(url: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return the process ID, the settings and the environment of the program."""
    async with httpx.AsyncClient(trust_env=False, timeout=within(60)) as client:
        pid, given, environment = (await client.get(url)).json()
    return pid, given, environment


async def killed(pid: int) -> None:
    """Kill the program and wait until it is gone: it may run for a moment more."""
    psutil.Process(pid).kill()
    await until(lambda: not psutil.pid_exists(pid))


async def test_it_gets_the_providers_settings_and_variables_but_none_of_burnishs(
    tmp_path: Path, interpreter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION_NAME", "eu-central-1")
    monkeypatch.setenv("BURNISH_ADMIN_KEY", "k")
    aws_settings = {"url": "litellm:bedrock", "models": ["claude-*"], "api_key": "sk", "api_base": "http://a"}
    settings = {"data_dir": tmp_path, "upstream": "litellm:vertex_ai/gemini", "model": "gemini"}
    settings |= {"upstream_api_key": "sk-main", "litellm": {"python": interpreter}}
    config = load_config(settings | {"upstreams": {"aws": aws_settings}})
    async with with_clouds(config) as served:
        main, aws = served.local(None), served.local("aws")
        assert main and aws
        _, given, environment = await asked(main.url)
    first, second = given["routes"]
    assert (first["provider"], first["model"], first["api_key"]) == ("vertex_ai", "gemini", "sk-main")
    assert first["names"] == ["gemini", "vertex_ai/gemini"]
    assert (second["provider"], second["model"], second["names"]) == ("bedrock", "", ["claude-*"])
    assert (second["api_key"], second["api_base"]) == ("sk", "http://a")
    tokens = [place.token.get_secret_value() for place in (main, aws)]
    assert [first["token"], second["token"]] == tokens
    assert first["token"] != second["token"]
    assert environment["AWS_REGION_NAME"] == "eu-central-1"
    assert environment["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert not [name for name in environment if name.startswith("BURNISH_")]


async def test_after_it_died_requests_wait_until_it_is_back(tmp_path: Path, interpreter: Path) -> None:
    async with litellm([ROUTE], interpreter, tmp_path / "log") as url:
        first, *_ = await asked(url)
        await killed(first)
        second, *_ = await asked(url)
        assert second != first
    assert not psutil.pid_exists(second)


async def test_while_it_can_not_be_started_requests_fail_at_once(
    tmp_path: Path, interpreter: Path, broken: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with litellm([ROUTE], interpreter, tmp_path / "log") as url:
        first, *_ = await asked(url)
        broken.touch()  # noqa: ASYNC240  (as quick as an await)
        await killed(first)
        with pytest.raises(httpx.HTTPError):
            await asked(url)
        assert "no memory; trying again in 2 s" in caplog.text
        broken.unlink()  # noqa: ASYNC240
        async with asyncio.timeout(within(30)):
            second = first
            while second == first:
                try:
                    second, *_ = await asked(url)
                except httpx.HTTPError:
                    await asyncio.sleep(0.1)
