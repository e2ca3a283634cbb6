"""How fast burnish trains: against TRL on the same batches, and 32 ratings from start to end.

``python -m bench.training [--objectives sft kto dpo] [--threads 1 2] [--repeats 3]`` runs both sides in turn, each in
processes of its own. It prints trained tokens a second, their ratio, CPU time and memory. Then it trains on 32 ratings
as the proxy does, with the default settings. It exits 1 if a median ratio is below 1, or if that run takes more than 60
CPU seconds or 2.5 GB. The seconds depend on the machine, the ratio hardly.

``python -m bench.training --gpu`` trains an 8B model of random weights on 32 ratings instead (bench/training_gpu.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import training_gpu
from bench.training_batch import rated
from bench.training_sides import SAMPLES, Objective, Taken
from burnish.adapters.hosts.fetch import SMALL_MODEL, SMALL_MODEL_DIGEST, cache_dir, ensure_small_model
from burnish.training.job import Hyperparameters, JobDirectory, JobSpec, TrainResult
from burnish.training.weights import prepared_weights

RATIO_LIMIT = 1.0
CPU_LIMIT_S = 60.0
MEMORY_LIMIT_BYTES = 2.5e9
GB = 1e9
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Compared:
    """Both sides' repetitions of one setting, in the order in which they ran."""

    objective: Objective
    threads: int
    burnish: tuple[Taken, ...]
    trl: tuple[Taken, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times as many tokens a second as TRL burnish trained, each repetition."""
        return [speed(ours) / speed(theirs) for ours, theirs in zip(self.burnish, self.trl, strict=True)]

    @property
    def cpu_ratios(self) -> list[float]:
        """The same a CPU second, which other work on the machine disturbs less."""
        return [
            theirs.cpu_seconds / ours.cpu_seconds for ours, theirs in zip(self.burnish, self.trl, strict=True)
        ]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def speed(taken: Taken) -> float:
    return taken.reply_tokens / taken.seconds


def compare(objective: Objective, threads: int, repeats: int, weights: Path, epochs: int = 2) -> Compared:
    """Run both sides in turn; raises AssertionError when they did not train on the same tokens."""
    ours: list[Taken] = []
    theirs: list[Taken] = []
    for _ in range(repeats):
        ours.append(_side("burnish", objective, threads, weights, epochs, "bfloat16"))
        theirs.append(_side("trl", objective, threads, weights, epochs, ours[-1].dtype))
        seen = [(side.steps, side.tokens, side.reply_tokens) for side in (ours[-1], theirs[-1])]
        assert seen[0] == seen[1], f"not the same (steps, tokens, reply tokens): {seen}"
    return Compared(objective, threads, tuple(ours), tuple(theirs))


def _side(side: str, objective: str, threads: int, weights: Path, epochs: int, dtype: str) -> Taken:
    command = [sys.executable, "-m", "bench.training_sides", side, objective, str(weights)]
    done = subprocess.run(
        [*command, "--epochs", str(epochs), "--dtype", dtype],
        cwd=ROOT,
        env=os.environ | _threads(threads),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    return Taken(**json.loads(done.stdout.splitlines()[-1]))


def _threads(count: int) -> dict[str, str]:
    """Return what ``python -m burnish.training`` sets for itself."""
    return {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "OMP_NUM_THREADS": str(count),
        "MKL_NUM_THREADS": str(count),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "ACCELERATE_USE_CPU": "true",
    }


def train_ratings(weights: Path, threads: int = 1, **changes: object) -> TrainResult:
    """Train on the 32 ratings in a child process, as the proxy starts one."""
    with tempfile.TemporaryDirectory() as folder:
        job = JobDirectory(Path(folder) / "job")
        spec = JobSpec(
            run_id="run_bench",
            base_model=SMALL_MODEL,
            base_weights=str(weights.absolute()),
            base_digest=SMALL_MODEL_DIGEST,
            weights_cache=str(cache_dir() / "weights"),
            hyperparameters=Hyperparameters.model_validate(changes),
            threads=threads,
            device="cpu",
        )
        job.write_job(spec, rated())
        command = [sys.executable, "-m", "burnish.training", "train", str(job.path)]
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
        return job.result()


def table(compared: Sequence[Compared]) -> str:
    lines = [
        f"{'objective':<10}{'threads':>8}{'side':>9}{'dtype':>10}{'reply tok/s':>13}{'all tok/s':>11}"
        f"{'CPU s':>8}{'peak GB':>9}  burnish / TRL: a second, a CPU second"
    ]
    for each in compared:
        ratio = f"{_spread(each.ratios)}, {_spread(each.cpu_ratios)}"
        for name, sides, last in (("burnish", each.burnish, ""), ("TRL", each.trl, ratio)):
            lines.append(
                f"{each.objective:<10}{each.threads:>8}{name:>9}{sides[-1].dtype:>10}"
                f"{statistics.median(map(speed, sides)):>13.1f}"
                f"{statistics.median(side.tokens / side.seconds for side in sides):>11.1f}"
                f"{statistics.median(side.cpu_seconds for side in sides):>8.1f}"
                f"{max(side.peak_rss_bytes for side in sides) / GB:>9.2f}  {last}"
            )
    return "\n".join(lines)


def _spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objectives", nargs="*", choices=tuple(SAMPLES), default=list(SAMPLES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gpu", action="store_true", help="an 8B model on the GPU instead")
    given = parser.parse_args()
    if given.gpu:
        return training_gpu.main()
    weights = prepared_weights(ensure_small_model(), SMALL_MODEL_DIGEST, cache_dir() / "weights")
    compared = [
        compare(objective, threads, given.repeats, weights)
        for threads in given.threads
        for objective in given.objectives
    ]
    if compared:
        print(table(compared), flush=True)
    run = train_ratings(weights)
    print(
        f"32 ratings, from start to end: {run.cpu_seconds:.1f} CPU seconds (limit {CPU_LIMIT_S:.0f}, on this machine), "
        f"{run.seconds:.1f} s, peak {run.peak_rss_bytes / GB:.2f} GB (limit {MEMORY_LIMIT_BYTES / GB}), "
        f"{run.steps} steps, {run.stopped_early or 'not stopped early'}; load average {os.getloadavg()[0]:.1f}"
    )
    slow = [each for each in compared if each.ratio < RATIO_LIMIT]
    broken = slow or run.cpu_seconds > CPU_LIMIT_S or run.peak_rss_bytes > MEMORY_LIMIT_BYTES
    print("LIMIT BROKEN" if broken else "within the limits")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
