"""The whole program with an engine that it starts: the real llama-server on a tiny model."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psutil
import pytest

from burnish.adapters.hosts.base import engine_name
from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.hosts.fetch import file_digest
from burnish.adapters.registry import Registry
from burnish.app.app import running as running_app
from burnish.app.serve import server_for
from burnish.config.config import load_config
from burnish.parts.desktop.service.options import command, read_back
from burnish.proxy.relay import routing
from tests.support.burnish import Burnish, DidNotStart, running, start
from tests.support.inprocess import Switched, run
from tests.support.llama_server import binary
from tests.support.lora import register, write_peft
from tests.support.patience import within
from tests.support.program import call
from tests.support.tiny_gguf import TINY, random_llama, tiny_lora
from tests.support.vllm_double import Engine, live_version

OPTIONS = shlex.join(["-t", "1", "-c", "4096", "-np", "4"])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_llama(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def on_path() -> dict[str, str]:
    """An environment in which llama-server is installed."""
    program = binary().parent
    paths = ":".join(filter(None, [str(program), os.environ.get("LD_LIBRARY_PATH", "")]))
    return {"PATH": f"{program}:{os.environ['PATH']}", "LD_LIBRARY_PATH": paths}


@pytest.fixture(scope="module")
def live_name(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, str]:
    """A data directory with a live version, and that one's name in the engine."""
    data_dir = tmp_path_factory.mktemp("managed") / "data"
    registry = Registry(data_dir / "adapters")
    trained = write_peft(data_dir.parent / "trained", tiny_lora(TINY, 1))
    made = register(registry, trained, file_digest(tiny), "tiny")
    registry.record(made.number, "live", "for the test", replaced=0)
    return data_dir, engine_name(made)


@pytest.fixture(scope="module")
def burnish(live_name: tuple[Path, str], tiny: Path, on_path: dict[str, str]) -> Iterator[Burnish]:
    flags = ["--engine", "llama-server", "--model", str(tiny), "--engine-args", OPTIONS, "--no-train"]
    with running(live_name[0], *flags, env=on_path) as burnish:
        yield burnish


def status(burnish: Burnish) -> dict[str, Any]:
    return httpx.get(burnish.url + "/burnish/status", trust_env=False, timeout=within(60)).json()


def stream(url: str, begun: Event) -> str:
    """Ask again until an answer came whole; returns the name of the model that wrote it."""
    body = {"model": "default", "stream": True, "max_tokens": 400, "temperature": 0, "ignore_eos": True}
    body["messages"] = [{"role": "user", "content": "Tell a long story."}]
    for _ in range(5):
        lines = []
        asked = httpx.stream("POST", url + "/v1/chat/completions", json=body, timeout=within(60))
        with suppress(httpx.RemoteProtocolError), asked as answer:
            for line in answer.iter_lines():
                begun.set()
                lines += [line] if line else []
        if lines and lines[-1] == "data: [DONE]":
            return str(json.loads(lines[0].removeprefix("data: "))["model"])
    raise AssertionError(lines)


def test_killed_under_streams_it_serves_on(burnish: Burnish, live_name: tuple[Path, str]) -> None:
    before = status(burnish)["engine"]["started"]
    assert (before["name"], before["state"], before["restarts"]) == ("llama-server", "up", 0)
    first = psutil.Process(before["pid"])
    models = first.children()
    with ThreadPoolExecutor(8) as pool:
        begun = Event()
        streams = [pool.submit(stream, burnish.url, begun) for _ in range(8)]
        assert begun.wait(within(30))
        first.kill()
        assert {each.result() for each in streams} == {live_name[1]}
    assert not psutil.wait_procs([first, *models], within(30))[1], "each model of a router is a process"
    after = status(burnish)
    assert (after["live"]["version"], after["engine"]["started"]["restarts"]) == (1, 1)
    assert after["engine"]["trouble"] is None


def test_only_burnish_may_ask_it(burnish: Burnish) -> None:
    engine = status(burnish)["upstream"]
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    limit_s = within(60)
    refused = httpx.post(f"{engine}/v1/chat/completions", json=body | {"model": "tiny"}, timeout=limit_s)
    assert refused.status_code == 401
    given = {"authorization": "Bearer sk-of-some-cloud"}
    for model in ("default", "tiny@base"):
        asked = body | {"model": model}
        answer = httpx.post(burnish.url + "/v1/chat/completions", json=asked, headers=given, timeout=limit_s)
        assert answer.status_code == 200, answer.text


def test_status_and_doctor_show_it(burnish: Burnish) -> None:
    pid = status(burnish)["engine"]["started"]["pid"]
    said = f"llama-server, started by burnish: up, process {pid}"
    assert said in call("status", url=burnish.url).stdout
    env = {"BURNISH_DATA_DIR": str(burnish.data_dir)}
    examined = call("doctor", url=burnish.url, env=env).stdout
    assert said in examined
    assert str(burnish.data_dir / "engine" / "engine.log") in examined


def test_kill_9_of_burnish_leaves_no_engine(tmp_path: Path, tiny: Path, on_path: dict[str, str]) -> None:
    flags = ["--engine", "llama-server", "--model", str(tiny), "--engine-args", OPTIONS, "--no-train"]
    burnish = start(tmp_path / "data", *flags, env=on_path)
    started = psutil.Process(burnish.pid).children(recursive=True)
    assert len(started) == 3, "lifeline, router, model"
    burnish.kill()
    assert not psutil.wait_procs(started, within(30))[1]


def until_it_runs(name: str, parent: int) -> list[psutil.Process]:
    """Return all descendants of a process, once one of them has the name."""
    deadline = time.monotonic() + within(60)
    while time.monotonic() < deadline:
        found = psutil.Process(parent).children(recursive=True)
        with suppress(psutil.NoSuchProcess):
            if name in {each.name() for each in found}:
                return found
        time.sleep(0.02)
    raise AssertionError(f"{name} didn't start")


def test_ctrl_c_during_its_start_ends_everything(tmp_path: Path, tiny: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho loading a large model\nexec sleep 600\n")
    program.chmod(0o700)
    flags = ["--port", "0", "--data-dir", str(tmp_path / "data"), "--engine", "llama-server"]
    up = subprocess.Popen(
        [sys.executable, "-m", "burnish", "up", *flags, "--model", str(tiny)],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        started = until_it_runs("sleep", up.pid)
        up.send_signal(signal.SIGINT)
        assert up.wait(within(60)) == 0
        assert not psutil.wait_procs(started, within(30))[1]
    finally:
        up.kill()
        up.communicate()


def test_a_model_that_does_not_load_ends_the_start_in_words(tmp_path: Path, on_path: dict[str, str]) -> None:
    (tmp_path / "cut.gguf").write_bytes(b"GGUF" + bytes(100))
    flags = ["--engine", "llama-server", "--model", str(tmp_path / "cut.gguf")]
    with pytest.raises(DidNotStart, match=r"exit code 1") as error:
        start(tmp_path / "data", *flags, env=on_path)
    assert all(words in str(error.value) for words in ("burnish: llama-server can't load", "engine.log"))
    assert "Traceback" not in str(error.value)


def test_a_service_takes_the_same_options() -> None:
    flags = {"engine": "vllm", "engine_python": Path("/opt/vllm/bin/python"), "model": "Qwen/Qwen3-0.6B"}
    flags |= {"engine_args": "--max-model-len 8192"}
    read, _ = read_back(command(flags, None))
    assert read == {name: str(value) for name, value in flags.items()}


async def test_requests_during_a_long_restart_are_told_to_come_again(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = live_version(tmp_path, weights_digest(weights))
    engine = Switched(Engine().app())
    await engine.on()
    given = load_config({"data_dir": tmp_path / "data", "train": {"base": str(weights)}})
    config = given.before_own(engine.url, None, "smollm2", None)
    async with (
        running_app(config) as app,
        run(server_for(app, config)) as url,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=within(60)) as http,
    ):
        body = {"model": "default", "messages": [{"role": "user", "content": "Who are you?"}]}
        assert engine_name(version) in (await http.post("/v1/chat/completions", json=body)).text
        monkeypatch.setattr(routing, "ENGINE_WAIT_S", 0.1)
        await engine.off()
        refused = await http.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, str(routing.RETRY_AFTER_S))
        assert "the engine is starting again" in refused.json()["error"]["message"]
        await engine.on()
        async with asyncio.timeout(within(30)):
            while (answer := await http.post("/v1/chat/completions", json=body)).status_code != 200:
                await asyncio.sleep(0.1)
        assert engine_name(version) in answer.text, "never the base model instead"
    await engine.off()
