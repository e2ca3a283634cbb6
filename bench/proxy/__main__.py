"""``python -m bench.proxy``: installs the others, runs them in turn with burnish, prints cost, latency and ratios.

Each round covers all proxies and all kinds of traffic, so other work on the machine affects all equally. The figures
are medians over rounds, with minimum and maximum; a ratio is the median of the rounds' ratios. The log of burnish is
on. CPU time is that of the whole process tree, from before the load until it is idle again, so late logging counts.
Latency is the time that a proxy adds to the upstream asked directly in the same round.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.proxy.peers import BURNISH, FLOOR, PEERS, Peer, at_commit, running
from bench.proxy.traffic import (
    LOAD_CORE,
    LOADS,
    CannotMeasure,
    Load,
    build,
    converse,
    free_port,
    load,
    settled,
    upstream,
    used,
)
from burnish.adapters.hosts.fetch import cache_dir

WARM_UP_S = 0.5


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one load, all in µs."""

    cpu: float = 0.0
    """A request, or a streamed chunk."""
    log: float = 0.0
    """Of it what threads used that are not the event loop, in those that log."""
    first: float = 0.0
    """Until the first byte of an answer, at the median."""
    p99: float = 0.0
    """Until the last byte of an answer."""


Rounds = dict[tuple[str, str], dict[int, Cost]]
"""By peer and load, then by round."""


def main() -> int:
    """Measure and print; exits 1 if burnish, or the commit, could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each kind of traffic, each round")
    parser.add_argument("--only", default="", help="names with commas between them; burnish is always there")
    parser.add_argument(
        "--against", metavar="COMMIT", help="burnish as it was then, and the floor, instead of the others"
    )
    parser.add_argument(
        "--quick", action="store_true", help="like --only floor --rounds 2 --seconds .6: under two minutes"
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 2, 0.6
    if options.quick or options.against:
        options.only = options.only or FLOOR.name
    peers = [
        peer for peer in PEERS if not options.only or peer is BURNISH or peer.name in options.only.split(",")
    ]
    peers += [at_commit(options.against)] if options.against else []
    rounds: Rounds = defaultdict(dict)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-proxy-")))
        build(folder)
        url = stack.enter_context(upstream(folder, free_port()))
        started = _start_all(stack, peers, folder, url)
        if not {BURNISH.name, options.against or BURNISH.name} <= {peer.name for peer in started}:
            return 1
        os.sched_setaffinity(0, {LOAD_CORE})  # the agent is this process
        for turn in range(options.rounds + 1):
            seconds = options.seconds if turn else min(options.seconds, WARM_UP_S)
            for place, kind in enumerate(LOADS):
                seed = turn * len(LOADS) + place + 1
                for name, cost in _one_round(folder, kind, started, url, seconds, seed):
                    if turn:  # the first one warms up
                        rounds[name, kind.name][turn] = cost
            started = dict(reversed(started.items()))  # none is always the first
            print(f"round {turn} of {options.rounds}", file=sys.stderr, flush=True)
    _report(rounds, [peer for peer in peers if peer in started])
    return 0 if (BURNISH.name, LOADS[0].name) in rounds else 1


def _start_all(stack: ExitStack, peers: list[Peer], folder: Path, url: str) -> dict[Peer, tuple[int, int]]:
    started = {}
    for peer in peers:
        place = folder / peer.name if peer.fresh else cache_dir() / "bench-proxy" / peer.name
        place.mkdir(parents=True, exist_ok=True)
        try:
            peer.install(place)
            started[peer] = stack.enter_context(running(peer, place, url))
        except CannotMeasure as error:
            print(f"left out: {error}", file=sys.stderr)
    return started


def _one_round(
    folder: Path, kind: Load, started: dict[Peer, tuple[int, int]], url: str, seconds: float, seed: int
) -> list[tuple[str, Cost]]:
    """Return each peer's cost of one kind of traffic; and the latency that it added, if that counts."""
    direct = Cost()
    if kind.latency:
        port = urlsplit(url).port
        assert port
        alone = load(folder, port, seconds, kind.options, seed)
        direct = Cost(first=alone["ttft_p50"], p99=alone["lat_p99"])
    costs = []
    for peer, (port, pid) in started.items():
        try:
            cost = _cost(folder, kind, port, pid, peer.options(url), seconds, seed)
        except CannotMeasure as error:
            print(f"{peer.name}, {kind.name}: {error}", file=sys.stderr)
            continue
        added = Cost(cost.cpu, cost.log, cost.first - direct.first, cost.p99 - direct.p99)
        costs.append((peer.name, added))
    return costs


def _cost(
    folder: Path, kind: Load, port: int, pid: int, options: tuple[str, ...], seconds: float, seed: int
) -> Cost:
    before = used(pid)
    if kind.turns:
        converse(folder, port, kind.turns, options, seed)
        result = {"ok": kind.turns, "ttft_p50": 0.0, "lat_p99": 0.0}
    else:
        result = load(folder, port, seconds, (*kind.options, *options), seed)
    after = settled(pid)
    share = 1e6 / (result["ok"] * (kind.chunks or 1))
    cpu = after.whole - before.whole
    loop = after.first_thread - before.first_thread
    return Cost(cpu * share, (cpu - loop) * share, result["ttft_p50"], result["lat_p99"])


def _report(rounds: Rounds, peers: Sequence[Peer]) -> None:
    """Print tables in Markdown."""
    timed = [kind for kind in LOADS if kind.latency]
    _table("CPU µs a request (of streams: a chunk)", LOADS, rounds, peers, lambda cost: cost.cpu)
    logging = [peer for peer in peers if peer.fresh]
    _table("Of it the log's threads", LOADS, rounds, logging, lambda cost: cost.log)
    _table("Added µs until the first byte, at the median", timed, rounds, peers, lambda cost: cost.first)
    _table("Added µs until the last byte, p99", timed, rounds, peers, lambda cost: cost.p99)


def _table(
    title: str, kinds: Sequence[Load], rounds: Rounds, peers: Sequence[Peer], figure: Callable[[Cost], float]
) -> None:
    print(f"\n{title}: median (least to most), burnish / it\n")
    print(f"| | {' | '.join(kind.name for kind in kinds)} |")
    print("|---" * (len(kinds) + 1) + "|")
    for peer in peers:
        cells = []
        for kind in kinds:
            theirs = {turn: figure(cost) for turn, cost in rounds.get((peer.name, kind.name), {}).items()}
            ours = {turn: figure(cost) for turn, cost in rounds.get((BURNISH.name, kind.name), {}).items()}
            cells.append(_cell(theirs, ours) if theirs else "–")
        print(f"| {peer.name} | {' | '.join(cells)} |")


def _cell(theirs: dict[int, float], ours: dict[int, float]) -> str:
    figures = theirs.values()
    cell = f"{statistics.median(figures):.0f} ({min(figures):.0f} to {max(figures):.0f})"
    if theirs == ours or min(figures) <= 0 or not theirs.keys() & ours.keys():
        return cell
    return (
        f"{cell}, {statistics.median(ours[turn] / theirs[turn] for turn in theirs.keys() & ours.keys()):.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
