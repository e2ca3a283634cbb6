"""A real mlx_lm.server on a port of 127.0.0.1, in the environment that scripts/engines makes, and a base for it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.numpy import save_file

from burnish.adapters.convert.peft import read_tensors

PYTHON = Path(__file__).parents[2] / ".engines" / "mlx" / "bin" / "python"
# 2 to 4 s on two quiet cores.
BOOT_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def mlx_base(weights: Path, target: Path) -> Path:
    """Copy a Hugging Face directory of transformers 5 so that MLX reads it right, and in float32.

    mlx-lm computes in whatever the weights are stored in, and does not look into rope_parameters.
    """
    target.mkdir()
    for path in weights.iterdir():
        if path.suffix != ".safetensors" and not path.name.startswith("."):
            shutil.copy(path, target)
    save_file(read_tensors(weights / "model.safetensors"), target / "model.safetensors", {"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    config |= {"rope_theta": config["rope_parameters"]["rope_theta"], "dtype": "float32"}
    (target / "config.json").write_text(json.dumps(config))
    return target


@contextmanager
def mlx_server(base: Path, hub: Path, log: Path) -> Iterator[str]:
    """Boot mlx_lm.server on a Hugging Face directory, with its own place for the hub's cache; gives its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PYTHON), "-m", "mlx_lm", "server", "--model", str(base), "--port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=os.environ | ENVIRONMENT | {"HF_HUB_CACHE": str(hub)}, stdout=output, stderr=output
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(server, url, log)
        yield url
    finally:
        _stop(server)


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + BOOT_TIMEOUT_S
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
        else:
            return
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise AssertionError(f"mlx_lm.server did not boot (exit status {server.poll()}):\n{tail}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
