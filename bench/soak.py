"""``python -m bench.soak --minutes 10``: burnish under mixed load, then with 2,000 idle streams. Does it grow, or leak?

A real burnish in a process of its own, log on, before the scripted upstream of ``bench.proxy``: small bodies, 32 KB,
1 MB, streams, clients that leave, prompts that are all different, and ratings. Exits 1 if a request failed, if
descriptors stay open, if memory grew by more than ``MAY_GROW_BYTES`` between the second fifth of the time and the last,
or if 2,000 idle streams need more than ``IDLE_STREAMS_BYTES``.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.proxy.peers import BURNISH, running
from bench.proxy.traffic import build, free_port, load, upstream

# Python's and SQLite's own heaps breathe by a few MiB.
MAY_GROW_BYTES = 24 * 2**20
IDLE_STREAMS_BYTES = 300 * 10**6
IDLE_STREAMS = 2_000
# Connections are kept for 4 s towards the upstream and 5 s towards clients.
SETTLED_S = 12.0
# What may come and go by itself: a file of SQLite, a connection that somebody looks in with.
SPARE_DESCRIPTORS = 4

MIXED = (
    ("conns=8", "rate=40"),
    ("conns=4", "rate=10", "size=32768"),
    ("conns=2", "rate=1", "size=1048576"),
    ("conns=24", "rate=4", "stream=1", "chunks=64", "delay=50"),
)
"""For the load generator: requests per second of each kind."""
SIZES = (200, 200, 200, 200, 2_000, 2_000, 8_000, 32_000, 200_000, 1_000_000)
"""Bytes of the prompts that are all different, in turn."""
PATH = "/v1/chat/completions"


@dataclass
class Watch:
    """Memory and descriptors of a process, sampled each second."""

    process: psutil.Process
    resident: list[int] = field(default_factory=list)
    """Bytes."""

    def descriptors(self) -> int:
        return int(self.process.num_fds())

    async def look(self) -> None:
        while True:
            self.resident.append(self.process.memory_info().rss)
            await asyncio.sleep(1)

    def fifth(self, which: int) -> float:
        """Median of one fifth of the samples so far, 0 to 4, in bytes."""
        size = max(1, len(self.resident) // 5)
        return statistics.median(self.resident[which * size :][:size])


@dataclass
class Tally:
    """Requests besides those of the load generator, and failures."""

    left: int = 0
    rated: int = 0
    faults: list[str] = field(default_factory=list)


async def leave_again_and_again(port: int, until: float, tally: Tally) -> None:
    """Begin streams and go away in the middle of them, five a second."""
    content = b'{"model":"mock","stream":true,"max_tokens":64,"seed":50,"messages":[{"role":"user","content":"Hi"}]}'
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (
        PATH.encode(),
        len(content),
    )
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + content)
        if not (await reader.readline()).startswith(b"HTTP/1.1 200"):
            tally.faults.append("a stream did not begin")
        writer.transport.abort()
        tally.left += 1
        await asyncio.sleep(0.2)


async def rate_again_and_again(port: int, until: float, tally: Tally) -> None:
    """Ask what was never asked before, and rate the answer, twice a second."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as http:
        while time.monotonic() < until:
            place = tally.rated
            prompt = f"{place} {time.time_ns()} " * (SIZES[place % len(SIZES)] // 25)
            asked = await http.post(
                PATH, json={"model": "mock", "messages": [{"role": "user", "content": prompt}]}
            )
            rating = {
                "completion_id": asked.headers["x-burnish-completion-id"],
                "rating": ("good", "bad")[place % 2],
            }
            rated = await http.post("/v1/feedback", json=rating)
            if (asked.status_code, rated.status_code) != (200, 201):
                tally.faults.append(f"asked {asked.status_code}, rated {rated.status_code}")
            tally.rated += 1
            await asyncio.sleep(0.5)


async def mixed(folder: Path, port: int, seconds: float) -> tuple[int, Tally]:
    """Send everything at once; return how many requests the load generator sent, and the rest."""
    tally, until = Tally(), time.monotonic() + seconds
    loads = [asyncio.to_thread(load, folder, port, seconds, options) for options in MIXED]
    work: list[Coroutine[Any, Any, Any]] = [
        *loads,
        leave_again_and_again(port, until, tally),
        rate_again_and_again(port, until, tally),
    ]
    found = await asyncio.gather(*work)
    return sum(each["ok"] for each in found[: len(loads)]), tally


async def idle(folder: Path, port: int, watch: Watch) -> tuple[int, int]:
    """Hold streams on which little comes; return memory (bytes) and descriptors meanwhile."""
    options = (f"conns={IDLE_STREAMS}", f"n={IDLE_STREAMS}", "stream=1", "chunks=4", "delay=10000")
    holding = asyncio.ensure_future(asyncio.to_thread(load, folder, port, 60, options))
    await asyncio.sleep(20)
    found = watch.process.memory_info().rss, watch.descriptors()
    await holding
    return found


async def soak(seconds: float) -> list[str]:
    """Run it all and say what happens; return what should not have."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-soak-")))
        build(folder)
        url = stack.enter_context(upstream(folder, free_port()))
        port, pid = stack.enter_context(running(BURNISH, folder, url))
        watch = Watch(psutil.Process(pid))
        before = watch.descriptors()
        looking = asyncio.ensure_future(watch.look())
        sent, tally = await mixed(folder, port, seconds)
        looking.cancel()
        await asyncio.sleep(SETTLED_S)
        settled = watch.descriptors()
        resident, held = await idle(folder, port, watch)
        await asyncio.sleep(SETTLED_S)
        after = watch.descriptors()
        disk = sum(file.stat().st_size for file in (folder / "data").rglob("*") if file.is_file())
    grown = watch.fifth(4) - watch.fifth(1)
    print(
        f"{sent} requests, {tally.rated} of other prompts and rated, {tally.left} left; {_mb(disk)} on disk"
    )
    print(f"memory: {_mb(watch.fifth(1))} warmed up, {_mb(watch.fifth(4))} at the end, {_mb(grown)} more")
    print(f"{IDLE_STREAMS} idle streams: {_mb(resident)}, {held} descriptors")
    print(f"descriptors: {before} before, {settled} after the load, {after} after the idle streams")
    wrong = tally.faults[:5]
    if grown > MAY_GROW_BYTES:
        wrong.append(f"memory grew by more than {_mb(MAY_GROW_BYTES)}")
    if resident > IDLE_STREAMS_BYTES:
        wrong.append(f"{IDLE_STREAMS} idle streams need more than {_mb(IDLE_STREAMS_BYTES)}")
    if max(settled, after) > before + SPARE_DESCRIPTORS:
        wrong.append("descriptors stay open")
    if held < 2 * IDLE_STREAMS:
        wrong.append(f"{IDLE_STREAMS} streams were not open at once")
    return wrong


def _mb(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of mixed load; two more for idle streams"
    )
    wrong = asyncio.run(soak(parser.parse_args().minutes * 60))
    for each in wrong:
        print(f"WRONG: {each}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
