"""How much later the first token comes through burnish than straight from the upstream.

A scripted upstream in a process of its own streams tokens; requests alternate between it and burnish in
front of it (log on), over one kept-alive connection each. Run: ``python -m bench.first_token``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.burnish import running
from tests.support.upstream import events, stream, upstream

LIMIT_MS = 3.0
WARM_UP = 20
BODY = json.dumps(
    {
        "model": "mock",
        "stream": True,
        "messages": [{"role": "system", "content": "x" * 1500}, {"role": "user", "content": "Say hello."}],
    }
).encode()


def _serve(ready: Connection) -> None:
    async def forever() -> None:
        async with upstream(stream(events("one two three four five six seven eight"))) as server:
            ready.send(server.url)
            while True:
                await asyncio.sleep(3600)
                server.requests.clear()

    asyncio.run(forever())


async def _first_token_s(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
    """Send one request and time its first SSE event; reads the answer to its end."""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    )
    begin = time.perf_counter()
    writer.write(head.encode() + BODY)
    await reader.readuntil(b"\r\n\r\n")
    received = await reader.readuntil(b"data: ")
    first = time.perf_counter() - begin
    while not received.endswith(b"0\r\n\r\n"):
        received = received[-4:] + await reader.read(65536)
    return first


async def measure(direct: str, proxied: str, requests: int) -> dict[str, float]:
    """Alternate between both; return medians and differences in milliseconds."""
    links = []
    for url in (direct, proxied):
        host, _, port = url.removeprefix("http://").partition(":")
        links.append(await asyncio.open_connection(host, int(port)))
    times: tuple[list[float], list[float]] = ([], [])
    for index in range(requests + WARM_UP):
        for link, kept in zip(links, times, strict=True):
            taken = await _first_token_s(*link)
            if index >= WARM_UP:
                kept.append(taken * 1e3)
    for _, writer in links:
        writer.close()
    added = sorted(b - a for a, b in zip(*times, strict=True))
    return {
        "requests": requests,
        "direct_median_ms": statistics.median(times[0]),
        "burnish_median_ms": statistics.median(times[1]),
        "added_median_ms": statistics.median(added),
        "added_p90_ms": added[int(0.9 * len(added))],
    }


def main() -> int:
    """Measure, print, and fail when the limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    direct = ours.recv()
    results = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "data", "--upstream", direct, "--no-train") as burnish,
    ):
        for _ in range(options.runs):
            results.append(asyncio.run(measure(direct, burnish.url, options.requests)))
            print(json.dumps({key: round(value, 3) for key, value in results[-1].items()}), flush=True)
    server.terminate()
    worst = max(result["added_median_ms"] for result in results)
    print(
        f"first token later by {worst:.2f} ms at the median (worst of {options.runs} runs); limit {LIMIT_MS} ms"
    )
    return 0 if worst <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
