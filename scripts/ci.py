"""Run CI in a clean clone: the checks, the ordinary tests, the package, and each room that is old.

Most tests wait for processes to start and end, so rooms run beside the ordinary tests, one at a time. One room that
isn't old runs too, chosen by the commit's hash, if half an hour isn't over yet. If it fails, the record of its pass was
false. See ``scripts/rooms.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rooms import ROOMS, Room, State, not_committed, passes_of, read_record, record_of, state

SPOT_CHECK_WITHIN_S = 1800.0
"""A room that isn't old is checked only before so much time is over: a slow machine must pass, too."""
LIMIT_S = 5400.0
STEPS = "steps"
"""The entry of the record that says how long everything took that is no room."""


class StepFailed(Exception):
    """A command of CI ended with an error, which it has printed."""


@dataclass
class Run:
    """One run of CI in a checkout."""

    root: Path
    rooms: Mapping[str, Room]
    began: float = field(default_factory=time.monotonic)
    took_s: dict[str, float] = field(default_factory=dict)
    """By step."""
    waiting: deque[str] = field(default_factory=deque)
    """Rooms that must still run."""
    spot: str | None = None
    """The room that need not run, but is checked."""
    _installing: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    failure: StepFailed | None = None
    """The first one. It stops everything else."""

    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def step(self, name: str, *command: str, beside: bool = False) -> None:
        """Run a command and remember how long it took; ``beside``: print its output when it ends. Raises StepFailed."""
        say(f"{name} begins")
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, cwd=self.root, stdout=output if beside else None,
                stderr=subprocess.STDOUT if beside else None, start_new_session=True,
            )  # fmt: skip
            self._running[name] = process
            if self.failure:
                end(process)
            status = process.wait()
            del self._running[name]
            output.seek(0)
            sys.stdout.write(output.read().decode(errors="replace"))
        self.took_s[name] = time.monotonic() - began
        if status:
            false = "; the record says that it passed with these very files, which is false"
            line = f"{' '.join(command)} ended with status {status}"
            raise self.failed(f"{name} failed: {line}{false if name == self.spot else ''}")

    def failed(self, reason: str) -> StepFailed:
        """Stop everything that runs; returns the first failure."""
        self.failure = self.failure or StepFailed(reason)
        self.stop()
        return self.failure

    def install(self, room: str) -> None:
        """Begin to install what a room needs. That waits for the network most of the time, and the tests don't."""
        command = ["scripts/test", "--install", room]
        self._installing[room] = subprocess.Popen(
            command, cwd=self.root, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def run_rooms(self, *, beside: bool) -> None:
        """Run the rooms that wait, one after the other. Raises StepFailed."""
        while not self.failure:
            try:
                name = self.waiting.popleft()
            except IndexError:
                return
            if name == self.spot and self.elapsed_s() >= SPOT_CHECK_WITHIN_S:
                say(f"{name} isn't checked again, because {duration(SPOT_CHECK_WITHIN_S)} are over")
            elif self._installing[name].wait():
                raise self.failed(f"what {name} needs was not installed")
            else:
                self.step(name, "scripts/test", "--room", name, beside=beside)

    def stop(self) -> None:
        """End everything that runs."""
        for process in (*self._running.values(), *self._installing.values()):
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def say(text: str) -> None:
    sys.stdout.write(f"── {text}\n")
    sys.stdout.flush()


def commit_of(root: Path) -> str:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    return head.stdout.strip()


def spot_check(states: Mapping[str, State], commit: str) -> str | None:
    """Return the room that a commit's hash chooses of those that aren't old."""
    fresh = sorted(name for name, it in states.items() if not it.old)
    return fresh[int(commit, 16) % len(fresh)] if fresh else None


def last_times(root: Path, rooms: Mapping[str, Room]) -> dict[str, float]:
    """Return how long each step took when it was last recorded, in seconds."""
    times: dict[str, float] = dict(read_record(root).get(STEPS) or {})
    for name in rooms:
        for each in passes_of(name, root):
            times[name] = each.get("took_s", 0.0)
    return times


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def say_plan(states: Mapping[str, State], spot: str | None, times: Mapping[str, float]) -> None:
    """Say what will run, and how long that took last time."""
    for name in ("check", "ordinary", "package"):
        say(f"{name}: runs (last time {duration(times.get(name))})")
    for name, it in states.items():
        runs = "runs" if it.old else "runs, chosen by the commit's hash" if name == spot else "doesn't run"
        say(f"{name}: {runs} (last time {duration(times.get(name))}): {it.reason}")


def say_times(run: Run, times: Mapping[str, float]) -> None:
    """Say what took longest."""
    say(f"this took {duration(run.elapsed_s())}, of {duration(LIMIT_S)} that CI has:")
    for name, seconds in sorted(run.took_s.items(), key=lambda item: -item[1]):
        say(f"{duration(seconds):>9}  {name} (last time {duration(times.get(name))})")


def carry_out(run: Run) -> None:
    """Run everything. Raises StepFailed."""
    states = {name: state(name, room, run.root) for name, room in run.rooms.items()}
    times = last_times(run.root, run.rooms)
    run.spot = spot_check(states, commit_of(run.root))
    say_plan(states, run.spot, times)
    try:
        run.step("install", "scripts/install", "develop")
        run.step("check", "scripts/check")
        if run.spot and not time_for_spot_check(run, times):
            say(f"{run.spot} won't run: the rest takes longer here than {duration(SPOT_CHECK_WITHIN_S)}")
            run.spot = None
        due = [name for name, it in states.items() if it.old or name == run.spot]
        for name in due:
            run.install(name)
        run.waiting.extend(name for name in due if not run.rooms[name].alone)
        with ThreadPoolExecutor(1) as beside:
            rooms = beside.submit(run.run_rooms, beside=True)
            try:
                run.step("ordinary", "scripts/test", "-q")
                run.step("package", "scripts/test", "--package", "-q")
                run.run_rooms(beside=False)
            finally:
                rooms.result()
        run.waiting.extend(name for name in due if run.rooms[name].alone)
        run.run_rooms(beside=False)
    finally:
        run.stop()
        say_times(run, times)
    record_times(run)


def time_for_spot_check(run: Run, times: Mapping[str, float]) -> bool:
    """Return whether a spot check leaves a slow machine time, judging by how long ``check`` took."""
    slowness = run.took_s["check"] / (times.get("check") or run.took_s["check"])
    rest_s = sum(times.get(name, 0.0) for name in ("ordinary", "package"))
    return run.elapsed_s() + slowness * rest_s < SPOT_CHECK_WITHIN_S


def record_times(run: Run) -> None:
    """Record how long the steps took, if this is the tree of a commit; a room's pass says that of the room."""
    if not not_committed(run.root):
        with record_of(run.root) as record:
            steps = {name: round(seconds) for name, seconds in run.took_s.items() if name not in run.rooms}
            record[STEPS] = {**(record.get(STEPS) or {}), **steps}


def main(root: Path, rooms: Mapping[str, Room] = ROOMS) -> int:
    """Run CI; returns the exit status."""
    try:
        carry_out(Run(root, rooms))
    except StepFailed as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
