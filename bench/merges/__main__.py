"""Do users get the same from a merged model as from the adapter at run time, and what does a merge cost?

``python -m bench.merges [--out FOLDER] [--replies 2000]`` teaches the small model short answers as the demo does,
merges the version, asks all models the same questions with the same seeds, and prints the table of
docs/measurements.md.
What was done is kept in FOLDER, so a second run goes on where the first one stopped; ``--replies 0`` only prints.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import httpx

from bench.merges.divergence import kl_per_token, read, score, slope, write
from bench.merges.models import BASE, DEFAULT, RUN_TIME, Compared, compared
from bench.merges.replies import ask, client, difference, kept

PAIRED = (RUN_TIME, DEFAULT)
CONTRAST_REPLIES = 300
"""Of the other models."""
SCORED_REPLIES = 60
"""Replies of the run-time adapter that all models score."""
ROUND = 100
"""Replies of one model before it is the next one's turn, so that a run that is cut has as many of each."""
LIMIT = -0.04
"""The interval of the default's difference must be above."""


async def measure(models: list[Compared], out: Path, count: int) -> None:
    """Ask the paired models, score the first replies, then ask the others."""
    paired = [model for model in models if model.name in PAIRED]
    others = [model for model in models if model.name not in PAIRED]
    async with AsyncExitStack() as engines:
        clients: dict[str, httpx.AsyncClient] = {}
        for model in models:
            process = await model.serve(out / f"{model.file}.log")
            engines.push_async_callback(process.stop)
            clients[model.name] = await engines.enter_async_context(client(process.url))

        async def ask_all(asked: list[Compared], wanted: int) -> None:
            await asyncio.gather(
                *(ask(clients[model.name], replies_of(model, out), wanted) for model in asked)
            )

        for so_far in range(0, count, ROUND):
            await ask_all(paired, min(so_far + ROUND, count))
            print(f"{so_far + ROUND} of {count} replies", file=sys.stderr, flush=True)
            if not so_far:
                await score_all(models, clients, out)
        await ask_all(others, min(count, CONTRAST_REPLIES))


async def score_all(models: list[Compared], clients: dict[str, httpx.AsyncClient], out: Path) -> None:
    """Score the first replies of the run-time adapter with all models."""
    adapter = next(model for model in models if model.name == RUN_TIME)
    replies = list(kept(replies_of(adapter, out)).values())
    chosen = sorted((each for each in replies if each.finished), key=lambda each: each.place)[:SCORED_REPLIES]
    for model in models:
        if not scores_of(model, out).exists():
            write(scores_of(model, out), await score(clients[model.name], chosen))


def replies_of(model: Compared, out: Path) -> Path:
    return out / f"{model.file}.replies.jsonl"


def scores_of(model: Compared, out: Path) -> Path:
    return out / f"{model.file}.scores.json"


def table(models: list[Compared], out: Path) -> tuple[list[str], bool]:
    """Return the lines of the table, and whether the goal was reached."""
    replies = {model.name: kept(replies_of(model, out)) for model in models}
    scores = {model.name: read(scores_of(model, out)) for model in models}
    lines = [
        "| model | replies | share that pleases | less the run-time adapter's, points | KL a token | kept | MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    reached = False
    for model in models:
        found = difference(replies[model.name], replies[RUN_TIME])
        if found is None:
            continue  # it wasn't asked yet
        apart, kl = "", ""
        if model.name != RUN_TIME:
            apart = f"{100 * found.difference:+.1f} ± {100 * found.half_width:.1f}"
            kl = f"{kl_per_token(scores[RUN_TIME], scores[model.name]):.4f}"
        effect = f"{slope(scores[RUN_TIME], scores[BASE], scores[model.name]):.2f}"
        share, size = f"{100 * found.share:.1f} %", f"{model.size_bytes / 1e6:.0f}"
        lines.append(f"| {model.name} | {found.pairs:,} | {share} | {apart} | {kl} | {effect} | {size} |")
        reached |= model.name == DEFAULT and found.lower > LIMIT
    return lines, reached


def cost(models: list[Compared]) -> str:
    """Return what the default merge cost."""
    [found] = [model.cost for model in models if model.cost]
    kept, noise = found.answer["kept"], found.answer["noise"]
    return (
        f"The default merge kept {kept:.3f} of the change, with rounding errors of {noise:.1f} times its size. It took "
        f"{found.wall_s:.1f} s ({found.cpu_s:.1f} s of CPU) and {found.peak_bytes / 1e6:.0f} MB of memory."
    )


def main() -> None:
    """Measure, print, and exit 1 if the goal was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("merges"))
    parser.add_argument("--replies", type=int, default=2000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    models = compared(options.out)
    if options.replies:
        asyncio.run(measure(models, options.out, options.replies))
    lines, reached = table(models, options.out)
    print("\n".join([*lines, "", cost(models)]))
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()
