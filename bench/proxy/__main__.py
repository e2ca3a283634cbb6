"""``python -m bench.proxy``: installs the others, runs them in turn with burnish, prints cost, latency and ratios.

Each round covers all proxies and all kinds of traffic, so other work on the machine affects all equally. The figures
are medians over rounds, with minimum and maximum. The log of burnish is on. CPU time is that of the whole process tree,
from before the load until it is idle again, so late logging counts. Latency is the time that a proxy adds to the
upstream asked directly in the same round.
"""

from __future__ import annotations

import argparse
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

from bench.proxy.peers import BURNISH, PEERS, Peer, running
from bench.proxy.traffic import LOADS, CannotMeasure, Load, build, free_port, load, settled, upstream
from burnish.adapters.hosts.fetch import cache_dir


@dataclass(frozen=True, slots=True)
class Taken:
    """The cost of one load, all in µs."""

    cpu: float = 0.0
    """A request, or a streamed chunk."""
    log: float = 0.0
    """Of it what burnish's threads used that are not the event loop."""
    first: float = 0.0
    """Until the first byte of an answer, at the median."""
    p99: float = 0.0
    """Until the last byte of an answer."""


Rounds = dict[tuple[str, str], list[Taken]]
"""By peer and load."""


def main() -> int:
    """Measure and print; exits 1 when burnish could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each kind of traffic, each round")
    parser.add_argument("--only", default="", help="names with commas between them; burnish is always there")
    given = parser.parse_args()
    wanted = [p for p in PEERS if not given.only or p is BURNISH or p.name in given.only.split(",")]
    rounds: Rounds = defaultdict(list)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-proxy-")))
        build(folder)
        url = stack.enter_context(upstream(folder, free_port()))
        started = _start_all(stack, wanted, folder, url)
        for turn in range(given.rounds + 1):
            for kind in LOADS:
                for name, taken in _one_round(folder, kind, started, url, given.seconds):
                    if turn:  # the first one warms up
                        rounds[name, kind.name].append(taken)
            print(f"round {turn} of {given.rounds}", file=sys.stderr, flush=True)
    _report(rounds)
    return 0 if (BURNISH.name, LOADS[0].name) in rounds else 1


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


def _one_round(
    folder: Path, kind: Load, started: dict[Peer, tuple[int, int]], url: str, seconds: float
) -> list[tuple[str, Taken]]:
    """Return what each peer took of one kind of traffic; of a paced one, what it added."""
    direct = Taken()
    if kind.paced:
        port = urlsplit(url).port
        assert port
        alone = load(folder, port, seconds, kind.options)
        direct = Taken(first=alone["ttft_p50"], p99=alone["lat_p99"])
    found = []
    for peer, (port, pid) in started.items():
        try:
            taken = _taken(folder, kind, port, pid, (*kind.options, *peer.options(url)), seconds)
        except CannotMeasure as error:
            print(f"{peer.name}, {kind.name}: {error}", file=sys.stderr)
            continue
        added = Taken(taken.cpu, taken.log, taken.first - direct.first, taken.p99 - direct.p99)
        found.append((peer.name, added))
    return found


def _taken(folder: Path, kind: Load, port: int, pid: int, options: tuple[str, ...], seconds: float) -> Taken:
    before = settled(pid)
    found = load(folder, port, seconds, options)
    after = settled(pid)
    share = 1e6 / (found["ok"] * (kind.chunks or 1))
    cpu = after.whole - before.whole
    loop = after.first_thread - before.first_thread
    return Taken(cpu * share, (cpu - loop) * share, found["ttft_p50"], found["lat_p99"])


def _report(rounds: Rounds) -> None:
    for kind in LOADS:
        unit = "chunk" if kind.chunks else "request"
        if kind.paced:
            _table(
                f"{kind.name}: added µs until the first byte, at the median", kind, rounds, lambda t: t.first
            )
            _table(f"{kind.name}: added µs until the last byte, p99", kind, rounds, lambda t: t.p99)
            continue
        _table(f"{kind.name}: CPU µs a {unit}", kind, rounds, lambda t: t.cpu)
        if ours := rounds.get((BURNISH.name, kind.name)):
            log = statistics.median(taken.log for taken in ours)
            print(f"  (of burnish's the log: {log:.0f})")


def _table(title: str, kind: Load, rounds: Rounds, figure: Callable[[Taken], float]) -> None:
    names = dict.fromkeys(name for name, _ in rounds)
    found = {name: [figure(each) for each in rounds.get((name, kind.name), ())] for name in names}
    ours = found[BURNISH.name]
    print(f"\n{title}, median (least to most), burnish / it")
    for name, figures in found.items():
        if figures:
            print(f"  {name:<16}{_spread(figures)}  {_ratio(ours, figures)}")


def _spread(figures: Sequence[float]) -> str:
    return f"{statistics.median(figures):9.1f}  ({min(figures):.1f} to {max(figures):.1f})"


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    middle = statistics.median(theirs)
    return f"{statistics.median(ours) / middle:6.3f}" if ours and middle > 0 else "–"


if __name__ == "__main__":
    sys.exit(main())
