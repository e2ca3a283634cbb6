"""Measure the cost and the speed of the page: ``python -m bench.page``. Exits 1 if a limit isn't kept.

Each part is a command of its own: ``python -m bench.page.events``, and so ``filters``, ``browser`` and
``first_minute``. All take five minutes. Run it on idle cores.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bench.page import browser, events, filters, first_minute


def main() -> None:
    cost = asyncio.run(events.measure())
    print(cost.in_words(), flush=True)
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        found = asyncio.run(filters.measure(data / "burnish.db"))
        print(filters.in_words(found), flush=True)
        figures = asyncio.run(browser.measure(data))
        figures.append(asyncio.run(first_minute.measure(Path(folder))))
    for each in figures:
        print(each)
    holds = all(each.holds for each in figures)
    raise SystemExit(cost.page > events.LIMIT or filters.is_slow(found) or not holds)


if __name__ == "__main__":
    main()
