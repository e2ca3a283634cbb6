"""Do the filters of the page stay quick in a large log?

``python -m bench.page.filters [--completions 100000] [--keep FOLDER]``: fills a log as ``bench.log_scale`` does. Of its
answers, a fifth are an agent's and a hundredth have failed. Then it asks for a page of rows by each filter, and by
several together. Exits 1 if the median of one is above the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from bench.log_scale import fill
from burnish.proxy.log import Log
from burnish.proxy.log.listings import Filters

LIMIT_MS = 100.0
PAGE = 50
ASKED = 40
# ``fill`` writes words of a few hundred: "parse" is in most texts, its numbers are in one each.
COMMON, RARE = "parse", "0.84"
Took = dict[str, tuple[float, float]]
"""Median and worst of each filter in ms."""
FILTERS = {
    "none": Filters(),
    "rated bad": Filters(rating="bad"),
    "unrated": Filters(rating="unrated"),
    "version": Filters(version=0),
    "agent": Filters(agent="codex"),
    "failed": Filters(failed=True),
    "agent, unrated": Filters(agent="codex", rating="unrated"),
    "agent, failed": Filters(agent="codex", failed=True),
    "search, common word": Filters(q=COMMON),
    "search, common beginning": Filters(q=COMMON[:3]),
    "search, rare word": Filters(q=RARE),
    "search, no such word": Filters(q="nosuchword"),
    "search, rated bad": Filters(q=COMMON, rating="bad"),
    "search, failed": Filters(q=COMMON, failed=True),
    "search, agent, unrated": Filters(q=COMMON, agent="codex", rating="unrated"),
    "search, unknown agent": Filters(q=COMMON, agent="nobody"),
}


async def measure(path: Path, completions: int = 100_000) -> Took:
    """Fill a log up to a size; return the median and the worst of each filter in ms."""
    log = Log.open(path)
    await fill(log, completions - (await log.counts())["completions"])
    log.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE completion SET agent = 'codex' WHERE n % 5 = 0")
        connection.execute("UPDATE completion SET outcome = 'cut' WHERE n % 100 = 0")
    log = Log.open(path)
    try:
        return {name: await _asked(log, filters) for name, filters in FILTERS.items()}
    finally:
        log.close()


async def _asked(log: Log, filters: Filters) -> tuple[float, float]:
    took = []
    for _ in range(ASKED + 1):
        began = time.perf_counter()
        await log.completions(PAGE, filters=filters)
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took[1:]), max(took[1:])  # the first one reads what later ones find in memory


def in_words(found: Took) -> str:
    return "\n".join(
        f"{name:<26}{median:8.1f} ms at the median, {worst:8.1f} at most"
        for name, (median, worst) in found.items()
    )


def is_slow(found: Took) -> bool:
    return max(median for median, _ in found.values()) > LIMIT_MS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="where the log is left; filled up if there is one already")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-filters-") as folder:
        path = (given.keep or Path(folder)) / "log.sqlite3"
        found = asyncio.run(measure(path, given.completions))
    print(in_words(found))
    raise SystemExit(is_slow(found))


if __name__ == "__main__":
    main()
