"""``python -m bench.hostile``: hostile upstreams and clients before a real burnish; what others notice of them.

Each case has a burnish of its own. Ordinary clients ask and rate before and while one hostile exchange runs, and until
it is stored. Then burnish is stopped and started again. Exits 1 if a case misses a limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from bench.hostile.cases import CASES
from bench.hostile.measure import Times, measured
from bench.hostile.verdict import HEADER, Figures, missed, row

QUICK = Times(share=0.1, quiet_s=2, limit_s=20, settle_s=2)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", help="cases whose names contain this; may be repeated")
    parser.add_argument("--list", action="store_true", help="name the cases, and end")
    parser.add_argument("--quick", action="store_true", help="a tenth of each size, and less time")
    parser.add_argument("--limit", type=float, help="seconds for a hostile exchange and its record (60)")
    parser.add_argument("--out", type=Path, help="also write the figures, as JSON")
    given = parser.parse_args()
    cases = [case for case in CASES if not given.only or any(part in case.name for part in given.only)]
    if given.list or not cases:
        print("\n".join(case.name for case in CASES))
        return 0 if given.list else 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    times = QUICK if given.quick else Times()
    if given.limit:
        times = replace(times, limit_s=given.limit)
    print(HEADER, flush=True)
    found: list[Figures] = []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="bench-hostile-") as folder:
            found.append(asyncio.run(measured(case, times, Path(folder))))
        print(row(found[-1]), flush=True)
        if given.out:
            given.out.write_text(
                json.dumps([asdict(each) | {"missed": missed(each)} for each in found], indent=1)
            )
    wrong = sum(bool(missed(each)) for each in found)
    print(f"{len(found) - wrong} of {len(found)} cases keep every limit")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
