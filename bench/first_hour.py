"""How long does the first hour take?

``python -m bench.first_hour``: clones this checkout into an empty folder and home, runs ``scripts/up`` there as a
newcomer would, asks through the openai client, and makes 16 comments on answers. Prints the seconds until the first
answer, the minutes from the first comment until a version that learnt from them is live, and the memory of the proxy's
process. Exits 1 if one is above its limit. Uncommitted changes aren't cloned. ``--here`` skips the installation and
uses this one. The limits hold on two idle cores, with packages that download quickly.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from bench.learning.learn import POLL_S, RUN_LIMIT_S
from burnish.parts.desktop.demo.halves import HALVES, Name
from burnish.parts.desktop.demo.questions import QUESTIONS
from burnish.parts.desktop.demo.user import User

CHECKOUT = Path(__file__).parents[1]
FIRST_ANSWER_LIMIT_S = 60.0
LEARNT_LIMIT_MIN = 6.0
MEMORY_LIMIT_MB = 100.0
# Beyond any limit above: a slow line should give a figure, not a failure.
START_LIMIT_S = 1800.0
STOP_LIMIT_S = 30.0
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--here", action="store_true", help="use this installation")
    here = parser.parse_args().here
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        sys.exit(measure(Path(folder), here=here))


def measure(folder: Path, *, here: bool) -> int:
    """Measure and print; returns the exit status."""
    kept = []
    began = time.monotonic()
    with started(folder, here=here) as (process, url), User(url, HALVES[Name.COMMENTS].system) as user:
        user.ask(QUESTIONS[0])
        kept.append(said("first answer", time.monotonic() - began, "s", FIRST_ANSWER_LIMIT_S))
        began = time.monotonic()
        questions = random.Random(SEED).sample(QUESTIONS, len(QUESTIONS))
        comments = sum(not good for good in user.teach(HALVES[Name.COMMENTS], questions, SEED))
        status = learnt(url)
        minutes = (time.monotonic() - began) / 60
        kept.append(said(f"{comments} comments to {status}", minutes, "min", LEARNT_LIMIT_MIN))
        memory = psutil.Process(process.pid).memory_info().rss / 1e6
        kept.append(said("memory of the proxy", memory, "MB", MEMORY_LIMIT_MB))
    return int(status != "live" or not all(kept))


def said(name: str, figure: float, unit: str, limit: float) -> bool:
    """Print a figure; return whether its limit is kept."""
    print(f"{name}: {figure:.1f} {unit}; limit {limit:.0f}", flush=True)
    return figure <= limit


@contextmanager
def started(folder: Path, *, here: bool) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Install and start burnish in an empty home; yield its process and its URL."""
    (home := folder / "home").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
    environment = environment | {"HOME": str(home), "BURNISH_DATA_DIR": str(home / "data")}
    if here:
        command = [sys.executable, "-m", "burnish", "up"]
    else:
        subprocess.run(["git", "clone", "-q", CHECKOUT, folder / "clone"], check=True)
        command = [str(folder / "clone" / "scripts" / "up")]
    process = subprocess.Popen(
        [*command, "--port", "0"],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        found = within(
            START_LIMIT_S, lambda: process.poll() is not None or running(home / "data" / "server.json")
        )
        if not isinstance(found, str):
            raise RuntimeError(f"burnish ended with status {process.returncode}")
        yield process, found
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_LIMIT_S)


def running(server_file: Path) -> str | None:
    """Return burnish's URL once it answers."""
    try:
        url = str(json.loads(server_file.read_text())["url"])
        return url if httpx.get(f"{url}/healthz").is_success else None
    except (OSError, ValueError, httpx.HTTPError):
        return None


def learnt(url: str) -> str:
    """Wait for the first run to end; return what became of it."""

    def ended() -> str | None:
        runs = httpx.get(f"{url}/burnish/runs").json()["runs"]
        return str(runs[-1]["status"]) if runs and runs[-1]["ended_at"] else None

    return str(within(RUN_LIMIT_S, ended))


def within(limit_s: float, found: Callable[[], object]) -> object:
    """Return what is found, once it is. Raises TimeoutError."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if result := found():
            return result
        time.sleep(POLL_S)
    raise TimeoutError(f"nothing happened within {limit_s:.0f} s")


if __name__ == "__main__":
    main()
