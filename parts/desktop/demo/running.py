"""A burnish of its own for a demo or a bench, started as anyone would, on a free port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

# The model is fetched on the very first start.
BOOT_LIMIT_S = 900.0
STOP_LIMIT_S = 30.0
POLL_S = 0.2
# The user's own settings that name places.
OWN_VARIABLES = (
    "BURNISH_CACHE_DIR",
    "BURNISH_UPSTREAM_API_KEY",
    "BURNISH_MODELS_PRESET",
    "BURNISH_TRAIN__BASE",
)
# Whoever starts a demo wants it to train now, whatever else the machine does.
WAITS_FOR_NOBODY = {
    "BURNISH_TRAIN__ON_BATTERY": "true",
    "BURNISH_TRAIN__MAX_LOAD": "1",
    "BURNISH_TRAIN__MEMORY_GB": "0",
}
SERVER_FILE = "server.json"

_running: set[subprocess.Popen[bytes]] = set()


class DidNotStart(RuntimeError):
    """burnish ended, or never answered, while it was starting."""


@contextmanager
def burnish(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Run ``burnish up`` on a data directory and yield its URL; ``settings`` are environment variables.

    The user's own configuration is ignored. Raises DidNotStart with what it printed.
    """
    own = {name: text for name, text in os.environ.items() if not name.startswith("BURNISH_")}
    own |= {name: os.environ[name] for name in OWN_VARIABLES if name in os.environ}
    nothing = folder / "config.toml"
    nothing.touch()
    (folder / SERVER_FILE).unlink(missing_ok=True)
    command = [sys.executable, "-m", "burnish", "up", "--port", "0", "--data-dir", str(folder)]
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=own | WAITS_FOR_NOBODY | {"BURNISH_CONFIG": str(nothing)} | dict(settings),
        )
    _running.add(process)
    try:
        yield _wait_for_url(folder, process)
    finally:
        _running.discard(process)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def stop_all() -> None:
    """Stop each burnish that this process runs."""
    while _running:
        _running.pop().send_signal(signal.SIGINT)


def _wait_for_url(folder: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + BOOT_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            url = str(json.loads((folder / SERVER_FILE).read_text(encoding="utf-8"))["url"])
            httpx.get(url + "/healthz", trust_env=False).raise_for_status()
            return url
        except (OSError, ValueError, KeyError, httpx.HTTPError):
            time.sleep(POLL_S)
    raise DidNotStart((folder / "output.txt").read_text(errors="replace"))
