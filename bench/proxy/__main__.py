"""``python -m bench.proxy``: installs the others, runs them in turn with burnish, prints cost and ratios.

Each round goes through all of them and all kinds of traffic, so that what else the machine does meets all alike; the
figures are medians over rounds, with the least and the most. The log of burnish is on. CPU time is that of the whole
process tree, from before the load until all of it is idle again: what is logged afterwards counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from bench.proxy.peers import BURNISH, PEERS, Peer, running
from bench.proxy.traffic import LOADS, CannotMeasure, Load, build, free_port, load, settled, upstream
from burnish.adapters.hosts.fetch import cache_dir

Costs = dict[tuple[str, str], list[float]]
"""(peer, load) → CPU µs a request, or a streamed chunk, of each round."""


def main() -> int:
    """Measure and print; exits 1 when burnish could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each kind of traffic, each round")
    parser.add_argument("--only", default="", help="names with commas between them; burnish is always there")
    given = parser.parse_args()
    wanted = [p for p in PEERS if not given.only or p is BURNISH or p.name in given.only.split(",")]
    costs: Costs = defaultdict(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-proxy-")))
        build(folder)
        url = stack.enter_context(upstream(folder, free_port()))
        started = _start_all(stack, wanted, folder, url)
        for turn in range(given.rounds + 1):
            for kind in LOADS:
                for peer, (port, pid) in started.items():
                    cost = _cost(folder, peer, port, pid, kind, url, given.seconds)
                    if turn and cost is not None:  # the first one warms up
                        costs[peer.name, kind.name].append(cost)
            print(f"round {turn} of {given.rounds}", file=sys.stderr, flush=True)
    _report(costs)
    return 0 if (BURNISH.name, LOADS[0].name) in costs else 1


def _start_all(stack: ExitStack, wanted: list[Peer], folder: Path, url: str) -> dict[Peer, tuple[int, int]]:
    started = {}
    for peer in wanted:
        # burnish's folder is new, so that its log is; the others' are kept, so that they are installed once.
        place = folder / peer.name if peer is BURNISH else cache_dir() / "bench-proxy" / peer.name
        place.mkdir(parents=True, exist_ok=True)
        try:
            peer.install(place)
            started[peer] = stack.enter_context(running(peer, place, url))
        except CannotMeasure as error:
            print(f"left out: {error}", file=sys.stderr)
    return started


def _cost(
    folder: Path, peer: Peer, port: int, pid: int, kind: Load, url: str, seconds: float
) -> float | None:
    before = settled(pid)
    try:
        found = load(folder, port, seconds, (*kind.options, *peer.options(url)))
    except CannotMeasure as error:
        print(f"{peer.name}, {kind.name}: {error}", file=sys.stderr)
        return None
    return (settled(pid) - before) * 1e6 / (found["ok"] * (kind.chunks or 1))


def _report(costs: Costs) -> None:
    names = list(dict.fromkeys(name for name, _ in costs))
    for kind in LOADS:
        ours = costs.get((BURNISH.name, kind.name))
        unit = "chunk" if kind.chunks else "request"
        print(f"\n{kind.name}: CPU µs a {unit}, median (least to most), burnish / it")
        for name in names:
            if found := costs.get((name, kind.name)):
                middle = statistics.median(found)
                ratio = f"{statistics.median(ours) / middle:6.2f}" if ours else "–"
                print(f"  {name:<16}{middle:9.0f}  ({min(found):.0f} to {max(found):.0f})  {ratio}")


if __name__ == "__main__":
    sys.exit(main())
