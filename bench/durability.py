"""Is anything lost that was acknowledged?

``python -m bench.durability [--kills 50]`` has two parts, and exits 1 if one fails.

(a) burnish runs under full load in front of a scripted upstream. Clients note when each answer ended, and rate some
answers. kill -9 comes at a random moment, again and again on the same data. Afterwards every acknowledged rating must
be there, and every completion that ended longer than the group-commit window before the kill. SQLite must find the
file intact.

(b) Four processes rate 150 answers each at the same time: 600 of 600 must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import aiohttp

from bench.proxy.traffic import build, environment, free_port, upstream, wait_for
from burnish.proxy.log.queue import WINDOW_S

CLIENTS = 8
RATED_EVERY = 5
LOAD_CONNECTIONS = 16
SHORTEST_S, LONGEST_S = 0.4, 1.6
"""From the start of the load to the kill."""
RATERS, RATINGS = 4, 150
STOP_LIMIT_S = 30
QUESTION = "What is rain? " * 140
"""2 KB, as in bench.proxy."""


@dataclass
class Seen:
    """The acknowledgements that clients received."""

    ended: dict[str, float] = field(default_factory=dict)
    """Completion → when its last byte came, on the monotonic clock."""
    rated: set[str] = field(default_factory=set)
    """Ratings that were answered 201."""


@dataclass
class Found:
    """The result of all kills."""

    completions: int = 0
    in_window: int = 0
    lost_in_window: int = 0
    lost: set[str] = field(default_factory=set)
    ratings: int = 0
    lost_ratings: set[str] = field(default_factory=set)
    oldest_lost_s: float = 0.0
    """How long before the kill the earliest lost completion had ended."""


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-durability-")))
        build(folder)
        url = stack.enter_context(upstream(folder, free_port()))
        found = killed_again_and_again(folder, url, given.kills, random.Random(given.seed))
        whole = integrity(folder / "data")
        stored, wanted = rated_at_once(folder / "raters", url)
    report(found, whole, given.kills, stored, wanted)
    return 0 if not found.lost and not found.lost_ratings and whole == "ok" and stored == wanted else 1


def killed_again_and_again(folder: Path, url: str, kills: int, chance: random.Random) -> Found:
    """Kill burnish under load, and look each time what is missing when it is up again."""
    found = Found()
    earlier: Seen | None = None
    killed_at = 0.0
    for number in range(kills + 1):
        with up(folder / "data", url) as (address, process):
            if earlier:
                account(found, folder / "data", earlier, killed_at)
                print(f"kill {number} of {kills}: {len(earlier.ended)} answers", file=sys.stderr, flush=True)
            if number == kills:
                break
            earlier = Seen()
            with crowd(folder, address):
                killed_at = asyncio.run(load_and_kill(address, process, earlier, chance))
            process.wait()
    return found


@contextmanager
def up(data: Path, url: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run burnish before an upstream; yields its address."""
    data.mkdir(parents=True, exist_ok=True)
    (data / "config.toml").touch()
    port = free_port()
    named = {
        "BURNISH_CONFIG": str(data / "config.toml"),
        "BURNISH_UPSTREAM": url,
        "BURNISH_ENGINE": "none",
        "BURNISH_MODEL": "mock",
    }
    command = [sys.executable, "-m", "burnish", "up", "--port", str(port), "--data-dir", str(data)]
    with (data / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=data,
            env=environment(**named),
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/healthz", process)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(STOP_LIMIT_S)


@contextmanager
def crowd(folder: Path, address: str) -> Iterator[None]:
    """Put burnish under full load."""
    port = address.rpartition(":")[2]
    command = [str(folder / "loadgen"), port, f"dur={10 * LONGEST_S:g}", f"conns={LOAD_CONNECTIONS}"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        load.kill()
        load.wait()


async def load_and_kill(
    address: str, process: subprocess.Popen[bytes], seen: Seen, chance: random.Random
) -> float:
    """Let clients ask and rate for a while, and kill burnish; returns when, on the monotonic clock."""
    async with aiohttp.ClientSession(trust_env=False) as session:
        clients = [
            asyncio.ensure_future(ask_and_rate(session, address, number, seen)) for number in range(CLIENTS)
        ]
        await asyncio.sleep(chance.uniform(SHORTEST_S, LONGEST_S))
        killed_at = time.monotonic()
        process.kill()
        await asyncio.gather(*clients)
    return killed_at


async def ask_and_rate(session: aiohttp.ClientSession, address: str, client: int, seen: Seen) -> None:
    """Ask without pause and rate every few answers, until burnish is gone."""
    number = 0
    with suppress(aiohttp.ClientError, ConnectionError):
        while True:
            number += 1
            text = f"{client} {number} {QUESTION}"
            body = {"model": "mock", "messages": [{"role": "user", "content": text}]}
            async with session.post(f"{address}/v1/chat/completions", json=body) as response:
                await response.read()
                name = response.headers["x-burnish-completion-id"]
            seen.ended[name] = time.monotonic()
            if number % RATED_EVERY == 0:
                rating = {"completion_id": name, "rating": "good", "rater": f"client {client}"}
                async with session.post(f"{address}/v1/feedback", json=rating) as response:
                    record = await response.json()
                    if response.status == 201:
                        seen.rated.add(record["id"])


def account(found: Found, data: Path, seen: Seen, killed_at: float) -> None:
    """Compare the acknowledgements with the database, after the spill files are read back."""
    while any((data / "burnish.db-spill").glob("*.captures")):
        time.sleep(0.1)
    with closing(sqlite3.connect(data / "burnish.db")) as database:
        completions = {name for (name,) in database.execute("SELECT id FROM completion")}
        ratings = {name for (name,) in database.execute("SELECT id FROM feedback")}
    promised = {name for name, ended in seen.ended.items() if ended < killed_at - WINDOW_S}
    missing = seen.ended.keys() - completions
    found.completions += len(seen.ended)
    found.in_window += len(seen.ended) - len(promised)
    found.lost |= missing & promised
    found.lost_in_window += len(missing - promised)
    found.ratings += len(seen.rated)
    found.lost_ratings |= seen.rated - ratings
    found.oldest_lost_s = max([found.oldest_lost_s, *(killed_at - seen.ended[name] for name in missing)])


def integrity(data: Path) -> str:
    """Return what SQLite says of the file."""
    with closing(sqlite3.connect(data / "burnish.db")) as database:
        return str(database.execute("PRAGMA integrity_check").fetchone()[0])


def rated_at_once(data: Path, url: str) -> tuple[int, int]:
    """Rate from several processes; returns how many ratings are stored, and how many there should be."""
    with up(data, url) as (address, _), ProcessPoolExecutor(RATERS, get_context("spawn")) as raters:
        told = [name for names in raters.map(rate, [address] * RATERS, range(RATERS)) for name in names]
    with closing(sqlite3.connect(data / "burnish.db")) as database:
        stored = {name for (name,) in database.execute("SELECT id FROM feedback")}
    return len(stored & set(told)), RATERS * RATINGS


def rate(address: str, rater: int) -> list[str]:
    """Ask and rate; returns the ids of the ratings that were acknowledged."""
    told = []
    for number in range(RATINGS):
        question = {"role": "user", "content": f"{rater} {number}"}
        _, name = post(f"{address}/v1/chat/completions", {"model": "mock", "messages": [question]})
        record, _ = post(
            f"{address}/v1/feedback", {"completion_id": name, "rating": "good", "rater": f"r{rater}"}
        )
        told.append(str(record["id"]))
    return told


def post(url: str, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Post JSON; returns the answer and the completion's id."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response), response.headers["x-burnish-completion-id"]


def report(found: Found, whole: str, kills: int, stored: int, wanted: int) -> None:
    """Print the table."""
    window_ms = 1000 * WINDOW_S
    print(f"kill -9 under full load             {kills:>8}")
    print(f"answers that ended                  {found.completions:>8,}")
    print(
        f"  in the last {window_ms:.0f} ms before a kill    {found.in_window:>8,}  ({found.lost_in_window:,} lost)"
    )
    print(f"  before: lost                      {len(found.lost):>8,}")
    print(f"  the earliest lost one had ended   {1000 * found.oldest_lost_s:>8.0f}  ms before the kill")
    print(f"ratings acknowledged                {found.ratings:>8,}")
    print(f"  lost                              {len(found.lost_ratings):>8,}")
    print(f"integrity_check                     {whole:>8}")
    print(f"ratings from {RATERS} processes at once      {stored:>8} of {wanted}")


if __name__ == "__main__":
    sys.exit(main())
