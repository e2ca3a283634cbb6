"""vLLM and MLX as burnish starts them: they die, and serve the live version again without anybody's hand."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psutil
import pytest

from burnish.adapters.hosts.base import engine_name
from burnish.adapters.hosts.detect import weights_digest
from burnish.proxy.relay.routing import ENGINE_WAIT_S
from tests.engines.conftest import make_live
from tests.support.burnish import Burnish, running
from tests.support.patience import within
from tests.support.real_engines import (
    MLX_ENVIRONMENT,
    MLX_PYTHON,
    VLLM_ENVIRONMENT,
    VLLM_OPTIONS,
    VLLM_PYTHON,
    needs,
)

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

STREAMS = 8
# vLLM's CPU build takes one to two minutes on two cores, and everything else that runs there slows it down.
BACK_WITHIN_S = 400.0


@dataclass
class Answers:
    """What the streams got."""

    whole: list[tuple[float, str]] = field(default_factory=list)
    """When each ended (monotonic), and the name of the model that wrote it."""
    failed: list[str] = field(default_factory=list)
    """The words of each error, or that a stream was cut."""


def stream(url: str, answers: Answers, stopping: Event) -> None:
    """Ask for one stream after another."""
    body = {"model": "default", "stream": True, "max_tokens": 32, "temperature": 0}
    body["messages"] = [{"role": "user", "content": "Tell a long story."}]
    while not stopping.is_set():
        try:
            with httpx.stream(
                "POST", f"{url}/v1/chat/completions", json=body, timeout=within(120)
            ) as response:
                lines = [line for line in response.iter_lines() if line]
        except httpx.TransportError as error:
            answers.failed.append(f"cut: {error!r}")
            continue
        if lines[-1] == "data: [DONE]":
            answers.whole.append((time.monotonic(), json.loads(lines[0].removeprefix("data: "))["model"]))
        else:
            answers.failed.append(" ".join(lines)[-500:])
            stopping.wait(0.5)  # as clients do before they try again


def until_new_stream(answers: Answers, since: float) -> None:
    """Wait for a stream that ended after a moment."""
    deadline = time.monotonic() + within(BACK_WITHIN_S)
    while not answers.whole or answers.whole[-1][0] <= since:
        assert time.monotonic() < deadline, answers.failed[-3:]
        time.sleep(0.1)


def started(burnish: Burnish) -> dict[str, Any]:
    status = httpx.get(burnish.url + "/burnish/status", timeout=within(10)).json()
    found: dict[str, Any] = status["engine"]["started"]
    return found


def family(pid: int) -> Sequence[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@needs("vllm")
def test_vllm_killed_under_eight_streams_serves_the_live_version_again(tmp_path: Path, weights: Path) -> None:
    data_dir, answers = tmp_path / "data", Answers()
    version = make_live(data_dir, weights_digest(weights), weights.name)
    flags = ["--engine", "vllm", "--engine-python", str(VLLM_PYTHON), "--model", str(weights), "--no-train"]
    flags += ["--engine-args", shlex.join(VLLM_OPTIONS)]
    stopping = Event()
    with running(data_dir, *flags, env=VLLM_ENVIRONMENT, boot_limit_s=within(BACK_WITHIN_S)) as burnish:
        first = started(burnish)
        processes = family(first["pid"])
        with ThreadPoolExecutor(STREAMS) as pool:
            try:
                for _ in range(STREAMS):
                    pool.submit(stream, burnish.url, answers, stopping)
                until_new_stream(answers, 0)
                os.kill(first["pid"], signal.SIGKILL)
                killed = time.monotonic()
                _, alive = psutil.wait_procs(processes, within(10))
                assert not alive, "what the engine had started ends with it"
                # In five seconds what was on its way is through.
                until_new_stream(answers, killed + within(5))
            finally:
                stopping.set()
        second = started(burnish)
        assert (second["state"], second["restarts"]) == ("up", 1)
        assert second["pid"] != first["pid"]
        assert answers.whole[-1][1] == engine_name(version)
        processes = family(second["pid"])
    assert not psutil.wait_procs(processes, within(10))[1], "it ends with burnish"


@needs("mlx")
def test_mlx_killed_serves_the_live_version_again(tmp_path: Path, base: Path) -> None:
    data_dir = tmp_path / "data"
    make_live(data_dir, weights_digest(base), str(base))
    flags = ["--engine", "mlx", "--engine-python", str(MLX_PYTHON), "--model", str(base), "--no-train"]
    env = MLX_ENVIRONMENT | {"HF_HUB_CACHE": str(tmp_path / "no-hub")}
    body = {"model": "default", "max_tokens": 8, "temperature": 0}
    body |= {"messages": [{"role": "user", "content": "Tell a long story."}]}

    def post() -> httpx.Response:
        return httpx.post(burnish.url + "/v1/chat/completions", json=body, timeout=within(120))

    def ask() -> tuple[str, int | None]:
        answer = post()
        # A slow machine starts the engine in more time than a request waits, which is then told to come again.
        while answer.status_code == 503:
            assert answer.elapsed.total_seconds() > ENGINE_WAIT_S - 1, answer.text
            answer = post()
        assert answer.status_code == 200, answer.text
        name = answer.headers["x-burnish-completion-id"]
        logged = httpx.get(f"{burnish.url}/burnish/completions/{name}", timeout=within(10))
        return answer.json()["choices"][0]["message"]["content"], logged.json()["adapter_version"]

    with running(data_dir, *flags, env=env) as burnish:
        before = ask()
        first = started(burnish)["pid"]
        os.kill(first, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(first)] if psutil.pid_exists(first) else [], within(10))
        assert ask() == before, "the request waited for the engine"
        assert before[1] == 1
        assert started(burnish)["restarts"] == 1
