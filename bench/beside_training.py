"""Does training slow down requests?

``python -m bench.beside_training [--rounds 3]``: 100 requests a second through burnish with its log on, in front of the
scripted upstream of ``bench.proxy``. Rounds alternate: the machine is otherwise idle, or a trainer learns from 32
ratings as burnish starts one. Exits 1 if the p99 beside the trainer is more than ``LIMIT`` times the other one.
``bench.swap`` measures the engine's part.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.proxy.peers import BURNISH, running
from bench.proxy.traffic import build, free_port, load, upstream
from bench.training import train_ratings
from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, cache_dir, ensure_small_model
from burnish.training.weights import prepared_weights

LIMIT = 1.5
PACE = ("conns=64", "rate=100")
LOADED_S = 15.0
"""After which a trainer has read its model and is at its steps."""


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of load, with and without training, each round"
    )
    given = parser.parse_args()
    weights = prepared_weights(ensure_small_model(), SMALL_MODEL_DIGEST, cache_dir() / "weights")
    found: dict[str, list[float]] = {"alone": [], "beside training": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-beside-")))
        build(folder)
        url = stack.enter_context(upstream(folder, free_port()))
        port, _ = stack.enter_context(running(BURNISH, folder, url))
        load(folder, port, 3, PACE)
        for _ in range(given.rounds):
            found["alone"].append(load(folder, port, given.seconds, PACE)["lat_p99"])
            with training(weights):
                found["beside training"].append(load(folder, port, given.seconds, PACE)["lat_p99"])
    for name, figures in found.items():
        print(
            f"p99 {name:<16}{statistics.median(figures):8.0f} µs  ({min(figures):.0f} to {max(figures):.0f})"
        )
    ratio = statistics.median(found["beside training"]) / statistics.median(found["alone"])
    print(f"ratio {ratio:.2f}, limit {LIMIT}")
    return int(ratio > LIMIT)


@contextmanager
def training(weights: Path) -> Iterator[None]:
    """Have a trainer at work meanwhile, and wait for its end. Raises RuntimeError when it was done too early."""
    thread = threading.Thread(target=train_ratings, args=(weights,))
    thread.start()
    try:
        time.sleep(LOADED_S)
        yield
        if not thread.is_alive():
            raise RuntimeError("the trainer was done before the load was: ask for fewer --seconds")
    finally:
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
