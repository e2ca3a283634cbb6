"""What 32 ratings cost from start to end.

``python -m bench.training`` trains on them as the proxy does, with the default settings. It exits 1 if that takes more
than 60 CPU seconds or 2.5 GB.

``python -m bench.training --gpu`` trains an 8B model of random weights on 32 ratings instead (bench/training_gpu.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import training_gpu
from bench.training_batch import rated
from burnish.adapters.hosts.fetch import SMALL_MODEL, SMALL_MODEL_DIGEST, cache_dir, ensure_small_model
from burnish.training.job import JobDirectory, JobSpec, TrainResult
from burnish.training.weights import prepared_weights

CPU_LIMIT_S = 60.0
MEMORY_LIMIT_BYTES = 2.5e9
GB = 1e9
ROOT = Path(__file__).parent.parent


def train_ratings(weights: Path) -> TrainResult:
    """Train on the 32 ratings in a child process, as the proxy starts one."""
    with tempfile.TemporaryDirectory() as folder:
        job = JobDirectory(Path(folder) / "job")
        spec = JobSpec(
            run_id="run_bench",
            base_model=SMALL_MODEL,
            base_weights=str(weights.absolute()),
            base_digest=SMALL_MODEL_DIGEST,
            weights_cache=str(cache_dir() / "weights"),
            device="cpu",
        )
        job.write_job(spec, rated())
        command = [sys.executable, "-m", "burnish.training", "train", str(job.path)]
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
        return job.result()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true", help="an 8B model on the GPU instead")
    if parser.parse_args().gpu:
        return training_gpu.main()
    weights = prepared_weights(ensure_small_model(), SMALL_MODEL_DIGEST, cache_dir() / "weights")
    run = train_ratings(weights)
    print(
        f"32 ratings, from start to end: {run.cpu_seconds:.1f} CPU seconds (limit {CPU_LIMIT_S:.0f}, on this machine), "
        f"{run.seconds:.1f} s, peak {run.peak_rss_bytes / GB:.2f} GB (limit {MEMORY_LIMIT_BYTES / GB}), "
        f"{run.steps} steps, {run.stopped_early or 'not stopped early'}; load average {os.getloadavg()[0]:.1f}"
    )
    broken = run.cpu_seconds > CPU_LIMIT_S or run.peak_rss_bytes > MEMORY_LIMIT_BYTES
    print("LIMIT BROKEN" if broken else "within the limits")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
