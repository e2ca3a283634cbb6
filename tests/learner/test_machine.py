"""What burnish reads of the machine it runs on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from burnish.learner import machine
from burnish.learner.machine import Meter, Work, load_of_others

CORES = psutil.cpu_count() or 1


@pytest.fixture
def spinning() -> Iterator[list[psutil.Process]]:
    with ExitStack() as stack:
        spin = [sys.executable, "-c", "while True: pass"]
        children = [stack.enter_context(subprocess.Popen(spin)) for _ in range(CORES)]
        for child in children:
            stack.callback(child.kill)
        yield [psutil.Process(child.pid) for child in children]


def spent(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


async def test_a_reading_leaves_out_our_own_children(spinning: list[psutil.Process]) -> None:
    began, before = time.monotonic(), spent(spinning)
    found = await Meter().measured()
    ours = (spent(spinning) - before) / (time.monotonic() - began) / CORES
    assert None not in (found.load, found.free_bytes, found.total_bytes)
    # All cores are busy, so what isn't ours is the others'.
    assert 0 <= (found.load or 0) <= 1 - ours + 0.15
    assert 0 < (found.free_bytes or 0) <= (found.total_bytes or 0)
    assert Meter().now().load is None


US, CHILD = psutil.Process(), psutil.Process(1)


@pytest.mark.parametrize(
    ("after", "load"),
    [
        (Work(40.0, 20.0, {}), 0.5),
        (Work(40.0, 0.0, {US: 15.0}), 0.75),  # 10 s of ours
        (Work(40.0, 20.0, {US: 5.0, CHILD: 20.0}), 0.0),  # a new child
        (Work(40.0, 40.0, {}), 0.0),
        (Work(40.0, 10.0, {US: 500.0}), 0.0),
        (Work(0.0, 0.0, {}), None),  # a container that hides the processor
    ],
)
def test_the_load_of_others(after: Work, load: float | None) -> None:
    assert load_of_others(Work(0.0, 0.0, {US: 5.0}), after) == load


MOUSE = {"status": "Discharging", "scope": "Device"}


@pytest.mark.skipif(not psutil.LINUX, reason="reads Linux's files")
@pytest.mark.parametrize(
    ("supplies", "on_battery"),
    [
        ({}, False),
        ({"BAT0": {"status": "Discharging"}, "AC": {"online": "0"}}, True),
        ({"BAT0": {"status": "Discharging"}}, True),
        ({"BAT0": {"status": "Charging"}, "AC": {"online": "1"}}, False),
        ({"BAT0": {"status": "Not charging"}}, False),
        ({"BAT0": {"status": "Unknown"}, "AC": {"online": "0"}}, False),
        ({"hidpp_battery_0": MOUSE}, False),
        ({"hidpp_battery_0": MOUSE, "macsmc-battery": {"status": "Full"}}, False),
    ],
)  # fmt: skip
def test_mains_and_battery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supplies: dict[str, dict[str, str]], on_battery: bool
) -> None:
    for name, files in supplies.items():
        (tmp_path / name).mkdir()
        for file, text in ({"capacity": "50"} | files).items():
            (tmp_path / name / file).write_text(text + "\n")
    monkeypatch.setattr(machine, "POWER_SUPPLIES", tmp_path)
    monkeypatch.setattr("psutil._pslinux.POWER_SUPPLY_PATH", str(tmp_path))
    assert Meter().now().on_battery is on_battery
