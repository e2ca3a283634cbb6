"""How many streams are logged wrongly when the client leaves at the last event, and the body ends later?

``python -m bench.leaving [--streams 200]``: as OpenAI's SDKs do, in each format, with 0, 5, 50 and 300 ms between the
last event and the end of the body. Each answer is rated at once. Right is: complete, and training can use the rating.
Exits 1 if an answer is logged wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.support.leaving import LAGS_S, STREAMS, lagging, learnable, leave_at_the_end

AT_ONCE = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    sys.exit(asyncio.run(run(parser.parse_args().streams)))


async def run(streams: int) -> int:
    print(
        f"wrong of {streams}   " + "".join(f"{1000 * lag_s:>6.0f} ms" for lag_s in LAGS_S) + "   connections"
    )
    wrong = 0
    for path in STREAMS:
        counted = [await measured(path, lag_s, streams) for lag_s in LAGS_S]
        wrong += sum(count for count, _ in counted)
        connections = " ".join(str(opened) for _, opened in counted)
        print(
            f"{path.partition('?')[0][-24:]:<24}" + "".join(f"{count:>9}" for count, _ in counted),
            connections,
        )
    return 1 if wrong else 0


async def measured(path: str, lag_s: float, streams: int) -> tuple[int, int]:
    """Return how many streams were logged wrongly, and how many connections the upstream saw."""
    with tempfile.TemporaryDirectory() as folder:
        ids: list[str] = []
        async with lagging(Path(folder), lag_s) as (http, server, _):
            while len(ids) < streams:
                several = (
                    leave_at_the_end(http, path, rate=True) for _ in range(min(AT_ONCE, streams - len(ids)))
                )
                ids += await asyncio.gather(*several)
        return len(set(ids) - await learnable(Path(folder))), server.connections


if __name__ == "__main__":
    main()
