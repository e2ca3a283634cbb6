"""Measure the CPU time that an open page costs burnish while 50 streams begin each second, with none open and with one.

``python -m bench.page.events [--seconds 10] [--rounds 3]``. First all rounds without a page, then all with one: burnish
goes on watching for half a minute after the last page.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.page.load import engine, streams
from tests.support.burnish import Burnish, in_thread, running
from tests.support.watching import Watcher, watching

STREAMS_S = 50
LIMIT = 0.05
"""Of a core."""


class Cost(NamedTuple):
    """Shares of a core are medians of the rounds."""

    none_open: float
    one_open: float
    text_events_s: float
    """How often the page got text."""
    answers_s: float

    @property
    def page(self) -> float:
        return self.one_open - self.none_open

    def in_words(self) -> str:
        return (
            f"{STREAMS_S} streams a second: {self.none_open:.1%} of a core without a page, {self.one_open:.1%} with "
            f"one: {self.page:+.1%} (at most {LIMIT:.0%}), x{self.one_open / self.none_open:.2f}; "
            f"{self.text_events_s:.1f} updates of text and {self.answers_s:.0f} answers a second reach the page"
        )


async def measure(seconds: float = 10.0, rounds: int = 3) -> Cost:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="page-events-")))
        served = await stack.enter_async_context(engine())
        flags = ("--upstream", served.url, "--model", "mock")
        burnish = await stack.enter_async_context(
            in_thread(running(folder / "data", *flags, env={"BURNISH_ENGINE": "none"}))
        )
        await _share(burnish, 2.0)  # connections are opened, code is warm
        without = [await _share(burnish, seconds) for _ in range(rounds)]
        page = await stack.enter_async_context(watching(burnish.url))
        await page.next("hello")
        texts, answers = len(page.all("text")), len(page.all("answer"))
        began = time.monotonic()
        with_one = [await _share(burnish, seconds) for _ in range(rounds)]
        took = time.monotonic() - began
        return Cost(
            statistics.median(without),
            statistics.median(with_one),
            _per_second(page, "text", texts, took),
            _per_second(page, "answer", answers, took),
        )


def _per_second(page: Watcher, name: str, before: int, took_s: float) -> float:
    return (len(page.all(name)) - before) / took_s


async def _share(burnish: Burnish, seconds: float) -> float:
    """Return the share of a core that burnish takes while streams begin for so long."""
    process = psutil.Process(burnish.pid)
    before, began = _cpu_s(process), time.monotonic()
    async with asyncio.TaskGroup() as group:
        group.create_task(streams(burnish.url, STREAMS_S, seconds))
        await asyncio.sleep(seconds)
        return (_cpu_s(process) - before) / (time.monotonic() - began)


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    cost = asyncio.run(measure(given.seconds, given.rounds))
    print(cost.in_words())
    raise SystemExit(cost.page > LIMIT)


if __name__ == "__main__":
    main()
