"""How much rounding is too much? The same adapter, ever fainter, so that its rounding errors are ever larger beside it.

``python -m bench.merges.noise [--out FOLDER]`` needs what ``python -m bench.merges`` left in FOLDER. It prints the
table that ``MAX_NOISE`` (adapters/convert/fidelity.py) comes from.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import shutil
from pathlib import Path

from bench.merges.divergence import Scores, kl_per_token, score, slope
from bench.merges.models import Compared
from bench.merges.replies import Reply, client, kept
from burnish.adapters.convert import fidelity
from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import read_base
from burnish.adapters.convert.merge import merge
from burnish.adapters.hosts.fetch import ensure_small_model

SCALES = (1.0, 0.5, 0.25)
REPLIES = 24


async def row(scale: float, taught: Path, replies: list[Reply], folder: Path, base: Scores) -> str:
    """Merge a fainter adapter, and compare both merges with it."""
    weights, adapter = ensure_small_model(), folder / f"adapter-{scale:g}"
    shutil.copytree(taught, adapter, dirs_exist_ok=True)
    settings = json.loads((taught / "adapter_config.json").read_text(encoding="utf-8"))
    settings["lora_alpha"] *= scale
    (adapter / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    converted, rounded, fine = (folder / f"{name}-{scale:g}.gguf" for name in ("adapter", "q8_0", "f16"))
    to_gguf(adapter, read_base(weights), converted)
    merged = merge(adapter, weights, rounded, "q8_0")
    merge(adapter, weights, fine, "f16")
    run_time = await scored(Compared("", "", weights, adapter, converted), replies, folder)
    figures = [f"{merged.noise:.1f}", f"{merged.kept:.3f}"]
    effects = []
    for path in (rounded, fine):
        found = await scored(Compared("", "", path), replies, folder)
        figures.append(f"{kl_per_token(run_time, found):.4f}")
        effects.append(f"{slope(run_time, base, found):.2f}")
    figures.append(f"{kl_per_token(run_time, base):.4f}")
    return f"| {scale:g} | {' | '.join(figures + effects)} |"


async def scored(model: Compared, replies: list[Reply], folder: Path) -> Scores:
    process = await model.serve(folder / "engine.log")
    try:
        async with client(process.url) as http:
            return await score(http, replies)
    finally:
        await process.stop()


async def measure(out: Path) -> None:
    folder, taught = out / "noise", out / "taught" / "adapters" / "v0001"
    folder.mkdir(exist_ok=True)
    finished = (each for each in kept(out / "run_time.replies.jsonl").values() if each.finished)
    replies = sorted(finished, key=lambda each: each.place)[:REPLIES]
    base = await scored(Compared("", "", ensure_small_model()), replies, folder)
    print(
        "| adapter × | rounding errors × its size | of the change | KL, q8_0 | KL, f16 | KL, base | kept, q8_0 | "
        "kept, f16 |\n|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for scale in SCALES:
        print(await row(scale, taught, replies, folder, base), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("merges"))
    fidelity.MAX_NOISE = math.inf  # what it refuses is measured, too
    asyncio.run(measure(parser.parse_args().out))


if __name__ == "__main__":
    main()
