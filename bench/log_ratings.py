"""Do many ratings make burnish slow?

``python -m bench.log_ratings [--completions 100000] [--ratings 20000] [--keep FOLDER]``: fills a tenth of a log as
``bench.log_scale`` does, copies the rows nine times (texts are shared), and rates answers. Then it asks a burnish that
runs on it for its status and its raters, and plans a run on all ratings. Exits 1 if a median is above its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.log_scale import fill
from burnish.learner import export
from burnish.learner.evidence import rated_replies
from burnish.proxy.log import Log
from burnish.training.job import JobDirectory
from tests.support.burnish import running
from tests.support.jobs import job_spec

COPIES = 9
"""A digit each."""
ANSWER_LIMIT_MS = 10.0
PLAN_LIMIT_S = 2.0
PLAN_LIMIT_MB = 100.0
BATCHES, BATCH = 7, 50
RATING = """INSERT INTO feedback (id, created_at, completion_id, conversation_id, target, reward, scale, scope, source,
        rater, weight, tags)
    SELECT 'fb_' || substr(id, 6), created_at, id, conversation_id, 'completion_id', iif(n % 3, 1.0, -1.0), 'binary',
        'completion', 'human', iif(n % 2, 'ann', 'bob'), 1.0, '[]'
    FROM completion WHERE id NOT IN (SELECT completion_id FROM feedback) AND n % ? = 0 LIMIT ?"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=100_000)
    parser.add_argument("--ratings", type=int, default=20_000)
    parser.add_argument(
        "--keep", type=Path, help="where the log is left; used as it is if there is one already"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="log-ratings-") as folder:
        data_dir = given.keep or Path(folder)
        path = data_dir / "burnish.db"
        if not path.exists():
            asyncio.run(filled(path, given.completions // (COPIES + 1)))
            multiply(path, given.completions, given.ratings)
        slow = asked(data_dir)
        # A process of its own, so that its memory is known.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            slow |= pool.apply(planned, (path,))
    sys.exit(slow)


async def filled(path: Path, completions: int) -> None:
    log = Log.open(path)
    await fill(log, completions)
    await log.counts()
    log.close()


def multiply(path: Path, completions: int, ratings: int) -> None:
    """Copy all rows of a log under other IDs, and rate answers."""
    with closing(sqlite3.connect(path)) as db, db:
        db.create_function("copied", 2, _copied, deterministic=True)
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(completion)") if name != "n"]
        renamed = {name: f"copied({name}, ?1)" for name in ("id", "conversation_id", "continues")}
        new = ", ".join(renamed.get(name, name) for name in columns)
        (last,) = db.execute("SELECT max(n) FROM completion").fetchone()
        for copy in range(1, COPIES + 1):
            db.execute(
                f"INSERT INTO completion ({', '.join(columns)}) SELECT {new} FROM completion WHERE n <= ?2",
                (copy, last),
            )
        (there,) = db.execute("SELECT count(*) FROM feedback").fetchone()
        db.execute(RATING, (max(1, completions // ratings - 1), ratings - there))
    with closing(sqlite3.connect(path)) as db:
        counts = [
            db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("completion", "feedback")
        ]
    print(f"{counts[0]:,} completions, {counts[1]:,} ratings, {path.stat().st_size / 1e6:.0f} MB", flush=True)


def _copied(name: str | None, copy: int) -> str | None:
    """Return the ID of some days before."""
    prefix, _, code = (name or "").partition("_")
    return name and f"{prefix}_{code[:2]}{copy}{code[3:]}"


def asked(data_dir: Path) -> bool:
    """Ask a running burnish; return whether it is slow."""
    slow = False
    with (
        running(data_dir, "--upstream", "http://127.0.0.1:9") as burnish,
        httpx.Client(base_url=burnish.url, timeout=120, trust_env=False) as http,
    ):
        process = psutil.Process(burnish.process.pid)
        last = http.get("/burnish/completions?limit=50").json()["data"]

        def rated_again() -> None:
            name = last[0]["id"]
            last.append(last.pop(0))
            http.post("/v1/feedback", json={"completion_id": name, "rating": "bad"}).raise_for_status()

        for name, path, before in (
            ("/healthz", "/healthz", None),
            ("/burnish/status", "/burnish/status", None),
            ("/burnish/raters", "/burnish/raters", None),
            ("a rating", "/healthz", rated_again),
            ("a rating, /burnish/status", "/burnish/status", rated_again),
            ("a rating, /burnish/raters", "/burnish/raters", rated_again),
        ):
            first = _cpu_ms(process, lambda: http.get(path).raise_for_status(), 1)  # noqa: B023
            took = [_cpu_ms(process, lambda: _ask(http, path, before), BATCH) for _ in range(BATCHES)]  # noqa: B023
            median = statistics.median(took)
            print(
                f"  {name:<28}{min(took):7.1f} ms CPU at least, {median:7.1f} at the median; the first {first:.0f}",
                flush=True,
            )
            slow |= before is None and median > ANSWER_LIMIT_MS
        print(f"  {process.memory_info().rss / 1e6:.0f} MB in memory")
    return slow


def _ask(http: httpx.Client, path: str, before: Callable[[], None] | None) -> None:
    if before:
        before()
    http.get(path).raise_for_status()


def _cpu_ms(process: psutil.Process, ask: Callable[[], object], times: int) -> float:
    before = process.cpu_times()
    for _ in range(times):
        ask()
    after = process.cpu_times()
    return 1000 * (after.user + after.system - before.user - before.system) / times


def planned(path: Path) -> bool:
    """Do what a plan and the writing of its job do; return whether they take too much."""
    return asyncio.run(_planned(path))


async def _planned(path: Path) -> bool:
    log = Log.open(path)
    await log.completions(1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), time.process_time()
    ratings = await log.ratings()
    replies = await log.rated(reversed(ratings), rated_replies)
    policies = export.Policies("")
    chosen = export.chosen(ratings, (), policies, learnable=True)
    await log.all_have_system_messages(each.rating.completion_id for each in chosen)
    took, used = time.perf_counter() - began, time.process_time() - cpu
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1000
    print(
        f"  a plan: {took:.2f} s, {used:.2f} s CPU, {grown:.0f} MB more; {len(ratings):,} ratings, {len(replies)} read"
    )
    began, cpu = time.perf_counter(), time.process_time()
    by_answer = {each.rating.answer: each for each in chosen}
    with tempfile.TemporaryDirectory() as folder:

        def write(rated: Any) -> int:
            samples = (export.sample(each, by_answer[each.answer], policies) for each in rated)
            JobDirectory(Path(folder)).write_job(job_spec(), samples)
            return sum(each.stat().st_size for each in Path(folder).iterdir())

        size = await log.rated((each.rating for each in chosen), write)
    log.close()
    wrote = time.process_time() - cpu
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1000
    print(
        f"  its job, {len(chosen):,} samples, {size / 1e6:.0f} MB: {time.perf_counter() - began:.2f} s, "
        f"{wrote:.2f} s CPU, {grown:.0f} MB more in all"
    )
    return used > PLAN_LIMIT_S or grown > PLAN_LIMIT_MB


if __name__ == "__main__":
    main()
