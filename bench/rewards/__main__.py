"""All figures of reward models: ``python -m bench.rewards [FOLDER]``.

Samples a pool of replies into FOLDER, once (half an hour on two idle cores), then runs
``bench.rewards.preference_model`` and ``bench.rewards.best_of`` on it, ten minutes together. Exits 1 if a limit of
theirs is missed. Writes their figures and two plots into FOLDER. PPO is compared with what burnish chooses by
``python -m bench.learning --only /64/134/``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from bench.rewards import best_of, plots, pool, preference_model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("burnish-bench"))
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    replies = given.folder / "replies.jsonl"
    asyncio.run(pool.fill(replies, pool.QUESTIONS, pool.EACH))
    missed = []
    for part, draw in ((preference_model, plots.orders), (best_of, plots.best_of)):
        name = part.__name__.rpartition(".")[2]
        if not part.holds(replies, given.seeds, figures := given.folder / f"{name}.json"):
            missed.append(name)
        draw(figures, given.folder / f"rewards-{name}.png")
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
