"""What the page costs burnish, and how quick its filters are: ``python -m bench.page``.

Each part is a command of its own: ``python -m bench.page.events``, ``python -m bench.page.filters``.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bench.page import events, filters


def main() -> None:
    cost = asyncio.run(events.measure())
    print(cost.in_words())
    with tempfile.TemporaryDirectory(prefix="page-filters-") as folder:
        found = asyncio.run(filters.measure(Path(folder) / "log.sqlite3"))
    print(filters.in_words(found))
    raise SystemExit(cost.page > events.LIMIT or filters.is_slow(found))


if __name__ == "__main__":
    main()
