"""``python -m bench.conformance --suites DIR``: run the vendors' suites directly, then through burnish, and compare.

DIR holds checkouts of the vendors' repositories, under the repositories' names:

    git clone https://github.com/openai/openai-python
    git clone https://github.com/anthropics/anthropic-sdk-python
    git clone https://github.com/openai/openai-node
    git clone https://github.com/ollama/ollama-python

The first two are needed, the others are run if they are there. What the suites need is installed into burnish's cache.
Prints each test that ends differently, and each request that reached the upstream differently. Exits 1 if there is one,
or if a suite can't run.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.conformance.suites import SUITES, CannotRun, Suite, Taken
from burnish.adapters.hosts.fetch import cache_dir

SHOWN = 20
"""Differences of a suite that are printed; the others are counted."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suites", type=Path, required=True, help="folder with the checkouts")
    parser.add_argument("--only", default="", help="names with commas between them")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    wanted = [suite for suite in SUITES if not given.only or suite.name in given.only.split(",")]
    print(f"{'suite':24} {'version':28} {'direct':>28} {'through burnish':>28} differing tests, requests")
    same = [compared(suite, given.suites.absolute() / suite.name) for suite in wanted]
    return 0 if same and all(same) else 1


def compared(suite: Suite, checkout: Path) -> bool:
    """Run a suite both ways and print the result. Returns whether nothing differs."""
    if not checkout.is_dir():
        print(
            f"{suite.name:24} {'needed' if suite.needed else 'not run'}: there is no {checkout}", flush=True
        )
        return not suite.needed
    home = cache_dir() / "conformance" / suite.name
    home.mkdir(parents=True, exist_ok=True)
    try:
        suite.install(checkout, home)
        with TemporaryDirectory(prefix="bench-conformance-") as folder:
            direct, through = (
                suite.run(checkout, home, Path(folder) / way, through=way == "through")
                for way in ("direct", "through")
            )
    except CannotRun as error:
        print(f"{suite.name:24} can't run: {error}", flush=True)
        return False
    tests = sorted(
        f"{test}: {direct.tests.get(test, 'not run')}, through burnish {through.tests.get(test, 'not run')}"
        for test in direct.tests.keys() | through.tests.keys()
        if direct.tests.get(test) != through.tests.get(test)
    )
    requests = _differing(direct.requests, through.requests)
    print(
        f"{suite.name:24} {suite.version(checkout):28} {_counts(direct):>28} {_counts(through):>28} "
        f"{len(tests)}, {f'{len(requests)} of {len(direct.requests)}' if direct.requests else 'not compared'}",
        flush=True,
    )
    for difference in [*tests[:SHOWN], *requests[:SHOWN]]:
        print(f"    {difference}", flush=True)
    return not tests and not requests


def _counts(taken: Taken) -> str:
    counts = Counter(taken.tests.values())
    return ", ".join(
        f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped") if counts[outcome]
    )


def _differing(direct: tuple[str, ...], through: tuple[str, ...]) -> list[str]:
    """Return the requests that only one of the ways sent upstream, whatever their order."""
    sent, arrived = Counter(direct), Counter(through)
    return [f"only direct: {each}" for each in (sent - arrived).elements()] + [
        f"only through burnish: {each}" for each in (arrived - sent).elements()
    ]


if __name__ == "__main__":
    sys.exit(main())
