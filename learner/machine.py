"""Power, memory and other programs on this machine, as they concern a run that would start by itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import psutil

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
    """Reads the machine."""

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
