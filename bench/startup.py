"""How long do the commands take, and a start?

``python -m bench.startup [--rounds 7]``: CPU seconds of commands, beside those of a Python that does nothing; then
seconds from ``burnish up`` to the first answer from an upstream. All with an empty home. Exits 1 if a median is above
its limit.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from bench.proxy.traffic import environment, free_port

BURNISH = str(Path(sys.executable).with_name("burnish"))
CPU_LIMITS_S = {"--version": 0.3, "--help": 0.3, "status": 0.45, "good": 0.45}
START_LIMIT_S = 1.5
ASK = {"model": "mock", "messages": [{"role": "user", "content": "What is rust?"}]}
ANSWER = (
    b'{"id": "1", "object": "chat.completion", "created": 1, "model": "mock", "choices": [{"index": 0,'
    b' "finish_reason": "stop", "message": {"role": "assistant", "content": "Iron oxide."}}]}'
)


class _Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b'{"object": "list", "data": [{"id": "mock", "object": "model"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(ANSWER)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="startup-") as folder:
        sys.exit(run(Path(folder), f"http://127.0.0.1:{upstream.server_port}", rounds))


def run(home: Path, upstream: str, rounds: int) -> int:
    """Measure and print; returns the exit status."""
    failed = False
    with started(home, upstream) as (settings, _):
        nothing = [cpu_s([sys.executable, "-c", "pass"], settings) for _ in range(rounds)]
        print(f"Python alone: {spread(nothing)} CPU s")
        for command, limit in CPU_LIMITS_S.items():
            figures = [cpu_s([BURNISH, command], settings) for _ in range(rounds)]
            ratio = statistics.median(figures) / statistics.median(nothing)
            print(f"burnish {command}: {spread(figures)} CPU s, {ratio:.1f} × Python; limit {limit}")
            failed |= statistics.median(figures) > limit
    starts = []
    for _ in range(rounds):
        with started(home, upstream) as (_, seconds):
            starts.append(seconds)
    print(f"burnish up to the first answer: {spread(starts)} s; limit {START_LIMIT_S}")
    return int(failed or statistics.median(starts) > START_LIMIT_S)


@contextmanager
def started(home: Path, upstream: str) -> Iterator[tuple[dict[str, str], float]]:
    """Run burnish; yields the environment of its commands, and the seconds until its first answer."""
    port = free_port()
    settings = environment(HOME=str(home), BURNISH_PORT=str(port), BURNISH_DATA_DIR=str(home / "data"))
    begun = time.perf_counter()
    process = subprocess.Popen(
        [BURNISH, "up", "--upstream", upstream],
        env=settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield settings, first_answer(f"http://127.0.0.1:{port}/v1/chat/completions", process) - begun
    finally:
        process.terminate()
        process.wait(30)


def first_answer(url: str, process: subprocess.Popen[bytes]) -> float:
    """Return the time (``perf_counter``) of the first answer. Raises RuntimeError if burnish ends before."""
    while process.poll() is None:
        try:
            httpx.post(url, json=ASK, timeout=30).raise_for_status()
        except httpx.ConnectError:
            time.sleep(0.01)
        else:
            return time.perf_counter()
    raise RuntimeError(f"burnish ended with status {process.returncode}")


def cpu_s(command: Sequence[str], settings: dict[str, str]) -> float:
    """Return the CPU seconds, user and system, of a command that succeeds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=settings, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def spread(figures: Sequence[float]) -> str:
    return f"{statistics.median(figures):.2f} ({min(figures):.2f} to {max(figures):.2f})"


if __name__ == "__main__":
    main()
