"""Power, memory, traffic and other programs, as they concern a run that would start by itself."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from burnish.adapters.errors import AdapterError

if TYPE_CHECKING:
    import psutil

logger = logging.getLogger(__name__)

# A look costs some milliseconds of the processor; a machine may stay on battery for days.
LOOK_EVERY_S = 30.0
# Evens out short bursts; a run waits for it once.
SAMPLE_S = 2.0
POWER_SUPPLIES = Path("/sys/class/power_supply")
"""On Linux."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One reading. None: unknown, which prevents no run."""

    on_battery: bool = False
    load: float | None = None
    """The share of all cores that other programs use; burnish and its engine don't count."""
    free_bytes: int | None = None
    """Memory that programs can get without swapping."""
    total_bytes: int | None = None


UNKNOWN = Machine()


class Meter:
    def now(self) -> Machine:
        """Return what is known at once: all but the load."""
        import psutil  # every command that starts no server does without

        memory = psutil.virtual_memory()
        return Machine(_on_battery(), None, memory.available, memory.total)

    async def measured(self) -> Machine:
        """Return all, after a look at the load for some seconds."""
        start = await asyncio.to_thread(_work)
        await asyncio.sleep(SAMPLE_S)
        end = await asyncio.to_thread(_work)
        return replace(self.now(), load=load_of_others(start, end))


@dataclass(slots=True)
class Surroundings:
    """The latest traffic, the latest reading of the machine, and since when only such things prevent a run."""

    meter: Meter
    memory_needed: Callable[[], int | None]
    """Returns the bytes that a run takes; it may read files."""
    busy_at: float | None = None
    """When a request was last in flight, in seconds since the epoch."""
    due_since: float | None = None
    machine: Machine = UNKNOWN
    needed_bytes: int | None = None
    _looked_at: float | None = None
    """On the monotonic clock."""

    async def look(self) -> None:
        """Read the machine, unless that was done just before."""
        if self._looked_at is not None and time.monotonic() < self._looked_at + LOOK_EVERY_S:
            return
        self.needed_bytes = await self._needed()
        self.machine = await _reading(self.meter.measured())
        self._looked_at = time.monotonic()

    def forget(self) -> None:
        """The reading isn't needed: the next one must be new."""
        self.machine, self._looked_at = UNKNOWN, None

    async def at_once(self) -> tuple[Machine, int | None]:
        """Return what is known of the machine without waiting, and the bytes that a run takes."""
        return await _reading(asyncio.to_thread(self.meter.now)), await self._needed()

    async def _needed(self) -> int | None:
        try:
            return await asyncio.to_thread(self.memory_needed)
        except AdapterError as error:
            logger.warning("it isn't known how much memory a run takes: %s", error)
            return None


async def _reading(machine: Awaitable[Machine]) -> Machine:
    try:
        return await machine
    except Exception:
        # Systems and their sensors fail in many ways, and none of them may end learning.
        logger.exception("the state of the machine can't be read; training goes on without it")
        return UNKNOWN


class Work(NamedTuple):
    """Processor time since some moment, in seconds."""

    total: float
    """Of all cores, idle or not."""
    idle: float
    own: Mapping[psutil.Process, float]
    """Of burnish and its children."""


def load_of_others(start: Work, end: Work) -> float | None:
    """Return the share of all cores that other programs used between two moments; None if the system doesn't tell."""
    total = end.total - start.total
    if total <= 0:
        return None
    own = sum(max(0.0, spent - start.own.get(process, 0.0)) for process, spent in end.own.items())
    return min(1.0, max(0.0, (total - (end.idle - start.idle) - own) / total))


def _work() -> Work:
    import psutil

    times = psutil.cpu_times()
    # Linux counts guests twice: as guests and as users.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    ourselves = psutil.Process(os.getpid())
    own: dict[psutil.Process, float] = {}
    for process in (ourselves, *ourselves.children(recursive=True)):
        try:
            spent = process.cpu_times()
        except psutil.Error:
            continue  # it has just ended
        own[process] = spent.user + spent.system
    return Work(total, times.idle + getattr(times, "iowait", 0.0), own)


def _on_battery() -> bool:
    import psutil

    try:
        battery = psutil.sensors_battery()
    except (AttributeError, psutil.Error, OSError, RuntimeError, ValueError):
        return False  # a system without this sensor, or with one that says nonsense
    # power_plugged is None if the battery doesn't tell.
    unplugged = battery is not None and battery.power_plugged is False
    return unplugged and (not psutil.LINUX or _own_battery_discharges())


def _own_battery_discharges() -> bool:
    """Return whether a battery of the machine itself is in use. psutil counts that of a wireless mouse, too."""
    for status in POWER_SUPPLIES.glob("*/status"):
        if _line(status) == "Discharging" and _line(status.with_name("scope")) != "Device":
            return True
    return False


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
