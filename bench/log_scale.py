"""Does the log stay quick when it is large?

``python -m bench.log_scale [--completions 1000000] [--keep FOLDER]``: fills a log through its writer:
conversations of four turns, every fiftieth answer rated. Then it asks for the latest answers, for one by its ID, for a
conversation and for the latest ratings. It adds one more rating, which the learner counts. Exits 1 if the median of one
of them is above the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from bench.log_growth import exchange, prose
from burnish.proxy.log import Log, RatingTally
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.listings import Filters
from burnish.proxy.records import FeedbackDraft

LIMIT_MS = 5.0
TURNS = 4
RATED_EVERY = 50
TOGETHER = 200
"""Conversations that go on at the same time, and so to a commit."""
ASKED = 300
PAGE = 50
LISTED = 20
"""As `burnish history` asks. A rated answer comes with its context, which is most of the time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="where the log is left; filled up if there is one already")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="log-scale-") as folder:
        sys.exit(asyncio.run(run((given.keep or Path(folder)) / "log.sqlite3", given.completions)))


async def run(path: Path, completions: int) -> int:
    """Fill a log up to a size and measure it; returns the exit code."""
    started = time.perf_counter()
    log = Log.open(path)
    opened_s = time.perf_counter() - started
    before = (await log.counts())["completions"]
    started = time.perf_counter()
    await fill(log, completions - before)
    seconds = time.perf_counter() - started
    added = max(completions - before, 0)
    print(f"opened in {opened_s:.2f} s; {added:,} added in {seconds:.0f} s", flush=True)
    medians = {name: await median_ms(name, ask) for name, ask in (await questions(log)).items()}
    log.close()
    size = sum(each.stat().st_size for each in path.parent.iterdir())
    print(f"{completions:,} completions, {size / 1e9:.2f} GB")
    return 0 if max(medians.values()) <= LIMIT_MS else 1


async def fill(log: Log, completions: int) -> None:
    """Add conversations, some of them at the same time."""
    chance = random.Random(0)
    words = [prose(chance, 40) for _ in range(1000)]
    done = 0
    while done < completions:
        histories: list[list[dict[str, Any]]] = [[] for _ in range(TOGETHER)]
        ratings: list[FeedbackDraft] = []
        for _ in range(TURNS):
            for number, history in enumerate(histories):
                history.append({"role": "user", "content": f"{chance.random()} {chance.choice(words)}"})
                answer = {"role": "assistant", "content": f"{chance.choice(words)} {chance.random()}"}
                body = {"model": "smollm2", "messages": history, "temperature": 0.7}
                each = exchange(orjson.dumps(body), answer)
                history.append(answer)
                log.capture(each)
                if (done + number) % RATED_EVERY == 0:
                    reward = chance.choice((-1.0, 1.0))
                    ratings.append(FeedbackDraft(each.id, "completion_id", reward=reward))
            done += TOGETHER
        await asyncio.gather(*map(log.add_feedback, ratings))  # behind what they rate: all of it is stored


async def questions(log: Log) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return what is asked, each time for something else."""
    chance = random.Random(1)
    # Ids sort by time: any point between the first and the last one is a page to go on from.
    known = await log.completions(limit=PAGE)
    while len(known) < 20 * PAGE and (
        more := await log.completions(limit=PAGE, before_id=_earlier(known[-1].id, chance))
    ):
        known += more

    def anything() -> Any:
        return chance.choice(known)

    return {
        "the latest": lambda: log.completions(limit=PAGE),
        "older ones": lambda: log.completions(limit=PAGE, before_id=anything().id),
        "by id": lambda: log.completion(anything().id),
        "by conversation": lambda: log.completions(
            limit=PAGE, filters=Filters(conversation=anything().conversation_id)
        ),
        "rated bad": lambda: log.completions(limit=LISTED, filters=Filters(rating="bad")),
        "with a comment": lambda: log.completions(limit=LISTED, filters=Filters(rating="commented")),
        "unrated": lambda: log.completions(limit=LISTED, filters=Filters(rating="unrated")),
        "of a rater": lambda: log.completions(limit=LISTED, filters=Filters(rater="local")),
        "of a version": lambda: log.completions(limit=LISTED, filters=Filters(version=0)),
        "latest of a caller": lambda: log.resolve(last_of="local"),
        "newest rated": lambda: log.judged_feedbacks(limit=LISTED),
        "one more rating": one_more_rating(log, lambda: anything().id),
    }


def one_more_rating(log: Log, answer: Callable[[], str]) -> Callable[[], Awaitable[object]]:
    """Return what stores a rating as ``POST /v1/feedback`` does and has the learner's counts brought up to date."""
    tally, learnt = RatingTally(Rules()), frozenset[str]()

    async def rate() -> None:
        completion = await log.resolve(completion_id=answer())
        await log.add_feedback(FeedbackDraft(completion.id, "completion_id", reward=1.0, scale="binary"))
        counts = await log.rating_counts(tally, learnt, "")
        assert counts.ready.good

    return rate


def _earlier(identifier: str, chance: random.Random) -> str:
    """Return the id of a moment some seconds before another one."""
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    prefix, _, code = identifier.partition("_")
    number = 0
    for each in code[:10]:
        number = number * 32 + alphabet.index(each)
    number -= chance.randrange(1, 10_000)
    digits = ""
    for _ in range(10):
        number, digit = divmod(number, 32)
        digits = alphabet[digit] + digits
    return f"{prefix}_{digits}{code[10:]}"


async def median_ms(name: str, ask: Callable[[], Awaitable[object]]) -> float:
    """Ask many times, print how long it took, and return the median."""
    took = []
    await ask()  # the first one reads what later ones find in memory
    for _ in range(ASKED):
        started = time.perf_counter()
        await ask()
        took.append(1000 * (time.perf_counter() - started))
    took.sort()
    median = statistics.median(took)
    print(f"  {name:<20}{median:8.2f} ms at the median, {took[int(0.99 * ASKED)]:8.2f} at p99", flush=True)
    return median


if __name__ == "__main__":
    main()
