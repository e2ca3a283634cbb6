"""A real vLLM on a port of 127.0.0.1, in the environment that scripts/engines makes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PYTHON = Path(__file__).parents[2] / ".engines" / "vllm" / "bin" / "python"
# 75 to 120 s on two quiet cores.
BOOT_TIMEOUT_S = 420.0
STOP_TIMEOUT_S = 30.0
ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def vllm_server(weights: Path, name: str, max_rank: int, log: Path, *, max_loras: int = 2) -> Iterator[str]:
    """Boot vLLM in float32 on a Hugging Face directory; gives its URL. ``max_loras``: adapters in one batch."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--model", str(weights), "--served-model-name", name, "--dtype", "float32"),
        *("--max-model-len", "2048", "--max-num-seqs", "8", "--enforce-eager"),
        *("--enable-lora", "--max-loras", str(max_loras), "--max-cpu-loras", "4"),
        *("--max-lora-rank", str(max_rank)),
    ]
    with log.open("wb") as output:
        # A session of its own, so that its workers end with it.
        server = subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, stdout=output, stderr=output, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(server, url, log)
        yield url
    finally:
        _stop(server)


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + BOOT_TIMEOUT_S
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{url}/v1/models", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise AssertionError(f"vLLM did not boot (exit status {server.poll()}):\n{tail}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
