"""What was measured of a case, the limits, and the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.hostile.crowd import CHAT, PROBE, RATING, Seen

MB = 10**6
PEAK_BYTES = 300 * MB
LEFT_BYTES = 50 * MB
PAUSE_S = 0.25
SLOWER = 3.0
RATING_S = 1.0
STUCK_S = 6.0
"""A log that is stuck for five seconds is trouble in ``/healthz``."""
STOPPED_S = 5.0
RESTARTED_S = 10.0
OK = range(200, 300)


class Others(NamedTuple):
    """What the ordinary clients saw in a part of the time."""

    chats: int
    p50_s: float
    """Of chats; like p99 and probes, less the time that the clients or burnish's event loop waited for a core."""
    p99_s: float
    p99_wall_s: float
    """With that time."""
    failed: int
    """Chats and ratings that were answered with an error, or not at all."""
    slowest_rating_s: float
    probe_s: float
    """Median answer of ``/healthz``."""
    slowest_probe_s: float
    degraded: int
    """Answers of ``/healthz`` that told of trouble."""


def others(exchanges: Sequence[Seen], began: float, ended: float) -> Others:
    """Sum up the exchanges that were open in a part of the time."""
    during = [each for each in exchanges if each.began < ended and each.began + each.took_s > began]
    chats = sorted(each.own_s for each in during if each.kind == CHAT)
    probes = sorted(each.own_s for each in during if each.kind == PROBE)
    return Others(
        chats=len(chats),
        p50_s=quantile(chats, 0.5),
        p99_s=quantile(chats, 0.99),
        p99_wall_s=quantile(sorted(each.took_s for each in during if each.kind == CHAT), 0.99),
        failed=sum(each.status not in OK for each in during if each.kind != PROBE),
        slowest_rating_s=max((each.took_s for each in during if each.kind == RATING), default=0.0),
        probe_s=quantile(probes, 0.5),
        slowest_probe_s=quantile(probes, 1.0),
        degraded=sum(each.degraded for each in during),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ordered figures; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    case: str
    took_s: float
    """Of the hostile exchange, up to its record in the log."""
    finished: bool
    """Whether the exchange ended within the time limit."""
    statuses: tuple[int, ...]
    """That hostile clients got, each once."""
    allowed: bool
    """Whether they are among those that the case allows."""
    before_bytes: float
    """Resident memory of burnish's own process."""
    peak_bytes: float
    after_bytes: float
    children_bytes: float
    """Peak of its child processes."""
    children: tuple[str, ...]
    """Their commands."""
    quiet: Others
    attacked: Others
    """From the hostile exchange to its record in the log."""
    settled: Others
    """Afterwards."""
    marked: str
    """How the exchange is marked in the log; "" if it isn't there."""
    logged: bool
    """Whether it was there within the time limit, if it has to be."""
    stopped_s: float | None
    """From SIGTERM to the end of the process; None: it had to be killed."""
    restarted_s: float | None
    """Until it answered again; None: it didn't."""
    rated_s: float | None
    """The first rating after the restart; None: it wasn't accepted in time."""

    @property
    def left_bytes(self) -> float:
        return self.after_bytes - self.before_bytes

    @property
    def slower(self) -> float:
        return self.attacked.p99_s / self.quiet.p99_s if self.quiet.p99_s else 0.0

    @property
    def pause_s(self) -> float:
        """Longest pause of the event loop: an answer of ``/healthz``, beyond what it takes anyway."""
        longest = max(self.attacked.slowest_probe_s, self.settled.slowest_probe_s)
        return max(0.0, longest - self.quiet.probe_s)

    @property
    def slowest_rating_s(self) -> float:
        return max(self.attacked.slowest_rating_s, self.settled.slowest_rating_s)

    @property
    def degraded(self) -> int:
        return self.attacked.degraded + self.settled.degraded

    @property
    def failed(self) -> int:
        return self.attacked.failed + self.settled.failed


LIMITS: dict[str, Callable[[Figures], bool]] = {
    "time": lambda found: found.finished,
    "answer": lambda found: found.allowed,
    "memory": lambda found: found.peak_bytes <= PEAK_BYTES,
    "left": lambda found: found.left_bytes <= LEFT_BYTES,
    "pause": lambda found: found.pause_s <= PAUSE_S,
    "others": lambda found: found.slower <= SLOWER,
    "failed": lambda found: found.failed == 0,
    "rating": lambda found: found.slowest_rating_s <= RATING_S,
    "told": lambda found: found.slowest_rating_s <= STUCK_S or found.degraded > 0,
    "log": lambda found: found.logged,
    "stop": lambda found: found.stopped_s is not None and found.stopped_s <= STOPPED_S,
    "restart": lambda found: found.restarted_s is not None and found.restarted_s <= RESTARTED_S,
    "rated": lambda found: found.rated_s is not None and found.rated_s <= RATING_S,
}
"""By name, whether a case keeps them."""


def missed(found: Figures) -> list[str]:
    """Return the names of the limits that a case misses."""
    return [name for name, kept in LIMITS.items() if not kept(found)]


HEADER = (
    f"{'case':<40} {'answer':<8} {'memory MB':<17} {'children':>8} {'pause':>6} {'p50 ms':>10} {'p99 ms':>12}"
    f" {'rating':>6} {'stored':>6} {'stop':>5} {'start':>5} {'rated':>5}  missed\n"
    f"{'':<40} {'':<8} {'before-peak-after':<17} {'MB':>8} {'ms':>6} {'quiet-then':>10} {'quiet-then':>12}"
    f" {'s':>6} {'s':>6} {'s':>5} {'s':>5} {'s':>5}"
)


def row(found: Figures) -> str:
    """Return the line of a case in the table."""
    memory = f"{found.before_bytes / MB:.0f}-{found.peak_bytes / MB:.0f}-{found.after_bytes / MB:.0f}"
    quiet, then = found.quiet, found.attacked
    told = "; /healthz: degraded" if found.degraded else ""
    return (
        f"{found.case:<40} {','.join(map(str, found.statuses)) or '-':<8} {memory:<17}"
        f" {found.children_bytes / MB:>8.0f} {1000 * found.pause_s:>6.0f}"
        f" {_ms(quiet.p50_s, then.p50_s):>10} {_ms(quiet.p99_s, then.p99_s):>12}"
        f" {found.slowest_rating_s:>6.2f} {found.took_s:>6.1f} {_s(found.stopped_s):>5} {_s(found.restarted_s):>5}"
        f" {_s(found.rated_s):>5}  {', '.join(missed(found)) or '-'}\n    log: {found.marked or '-'}{told}"
    )


def _ms(quiet_s: float, then_s: float) -> str:
    return f"{1000 * quiet_s:.0f}-{1000 * then_s:.0f}"


def _s(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"
