"""Name the slow suites that a change concerns, and record that they passed.

A room is a suite that takes minutes and depends on a part of the code. ``.ci/rooms.json`` holds, per room, the
digests of the contents with which its suite last passed. A room is old, and its suite must run, if today's contents
are not among them, or passed more than 14 days ago.

    rooms.py old            each room, and whether it is old
    rooms.py files ROOM     what it depends on
    rooms.py tests ROOM     what pytest runs for it; "ordinary": the options for everything that is in no room
    rooms.py digest ROOM    the digest of its contents now
    rooms.py passed ROOM DIGEST SECONDS
                            record that it passed, if the working tree is that of a commit
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

RECORD = Path(".ci/rooms.json")
MAX_AGE_DAYS = 14
"""What no digest sees (another machine, another kernel, a new browser) is tested at least that often."""
KEPT = 20
"""Passes of each room. A change that is taken back needs no second run."""


@dataclass(frozen=True, slots=True)
class Room:
    """A suite, and what it depends on: its tests, further files, and all modules of ours that these import."""

    tests: tuple[str, ...]
    """Globs of the test files that pytest runs."""
    files: tuple[str, ...]
    """Globs of what the tests don't import: programs that they start, their data and their installer."""
    apart: tuple[str, ...]
    """Modules that other tests answer for: nothing there, or only imported there, counts."""
    alone: bool = False
    """It keeps all processors busy, so it would only slow down what runs beside it."""


# Several suites start the whole of burnish, which names every part of itself, so that whole closures would be nearly
# everything. Each room therefore names the parts that it can't break by itself. A new part counts until it is named.
ROOMS: Mapping[str, Room] = {
    # Gradients, conversions, and the real models that prove both. No burnish runs here.
    "training": Room(
        (
            "tests/training/**/test_*.py",
            "tests/adapters/test_convert_*.py",
            "tests/adapters/test_merge*.py",
            "tests/adapters/test_served_as_trained.py",
            "tests/bench/test_gate_candidates.py",
            "tests/bench/test_losses.py",
            "tests/bench/test_training.py",
        ),
        (
            "tests/conftest.py",
            "tests/training/**/conftest.py",
            "tests/adapters/conftest.py",
            "training/**/*",
            "adapters/convert/**/*.py",
            "learner/export.py",
            "proxy/feedback/usability.py",
            "config/tables.py",
            "constraints.txt",
        ),
        (
            "burnish.app",
            "burnish.cli",
            "burnish.learner",
            "burnish.parts",
            "burnish.proxy",
            "burnish.terminal",
        ),
    ),
    # Chromium and the page, before a real burnish that doesn't train.
    "page": Room(
        ("tests/page/test_*.py",),
        (
            "tests/conftest.py",
            "tests/page/*.py",
            "tests/page/js/*",
            "app/app.py",
            "parts/page/*",
            "parts/page/files/**/*",
            "scripts/browser",
            "scripts/page",
            "constraints.txt",
        ),
        (
            "burnish.adapters.convert",
            "burnish.adapters.hosts",
            "burnish.training",
            "burnish.cli",
            "burnish.parts.datasets",
            "burnish.app.observe",
            "burnish.parts.desktop.service",
            "burnish.parts.signals",
        ),
    ),
    # Hosts, converters and trainers with real engines. The proxy before them meets the same answers from the doubles
    # in tests/support; of it, only what asks and opens engines counts.
    "engines": Room(
        ("tests/engines/test_*.py",),
        (
            "tests/conftest.py",
            "tests/engines/*.py",
            "adapters/hosts/**/*.py",
            "learner/foreign_engine.py",
            "proxy/cloud.py",
            "proxy/litellm_child.py",
            "training/__main__.py",
            "training/backends/*.py",
            "scripts/engines",
            "constraints.txt",
        ),
        (
            "bench",
            "burnish.app",
            "burnish.cli",
            "burnish.learner",
            "burnish.parts",
            "burnish.proxy",
            "burnish.terminal",
        ),
    ),
    # Agents and SDKs speak to the whole proxy. It runs with --no-train before an upstream.
    "clients": Room(
        ("tests/clients/test_*.py",),
        (
            "tests/conftest.py",
            "tests/clients/**/*",
            "docs/agents.md",  # its snippets are run
            "learner/asked.py",
            "training/rendering.py",
            "training/thoughts.py",
            "parts/connect/command.py",
            "parts/connect/hook.py",
            "cli/rate.py",
            "parts/connect/**/*",
            "scripts/clients",
            "constraints.txt",
        ),
        (
            "bench",
            "burnish.adapters",
            "burnish.gate",
            "burnish.agents",
            "burnish.training",
            "burnish.parts.datasets",
            "burnish.parts.duels",
            "burnish.parts.judging",
            "burnish.learner",
            "burnish.app.observe",
            "burnish.parts.page",
            "burnish.parts.rewards",
            "burnish.parts.desktop.service",
        ),
    ),
    # Simulated users and agents in front of the small model: how ratings and rewards become lessons, versions and
    # instructions. How requests travel changes nothing about what is learnt.
    "learning": Room(
        ("tests/agents/test_examples_small.py",),
        (
            "bench/learning/**/*",
            "tests/conftest.py",
            "parts/desktop/demo/*.py",
            "learner/**/*.py",
            "proxy/instructions/**/*.py",
            "training/**/*",
            "gate/**/*.py",
            "adapters/hosts/embedded*.py",
            "constraints.txt",
        ),
        (
            "burnish.cli",
            "burnish.proxy.access",
            "burnish.proxy.http",
            "burnish.proxy.relay",
            "burnish.proxy.surfaces",
            "burnish.app.observe",
        ),
        alone=True,
    ),
}


@dataclass(frozen=True, slots=True)
class State:
    """Whether a room's suite must run, and why or why not."""

    old: bool
    reason: str


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Return the dotted names that a file imports, at its top or in a function; a name may be that of an object."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif (
            isinstance(node, ast.ImportFrom) and not node.level
        ):  # ours are never relative: ruff refuses them
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def module_files(name: str, root: Path) -> Iterator[Path]:
    """Yield the files that importing a name of ours executes: the packages on the way, and the module."""
    for base in (root / "src", root):  # src/burnish holds links to the rooms' folders
        place = base
        for part in name.split("."):
            place = place / part
            if (init := place / "__init__.py").is_file():
                yield init.resolve()
            elif (module := place.with_suffix(".py")).is_file():
                yield module.resolve()


def matches(globs: Iterable[str], root: Path) -> Iterator[Path]:
    """Yield the files that some globs name, without what Python left beside them."""
    for glob in globs:
        for path in sorted(root.glob(glob)):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.resolve()


def closure(room: Room, root: Path) -> set[Path]:
    """Return every file that a room depends on."""
    files: set[Path] = set()
    waiting = list(matches((*room.tests, *room.files), root))
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        files.add(path)
        if path.suffix == ".py":
            for name in imported(path):
                if not any(f"{name}.".startswith(f"{apart}.") for apart in room.apart):
                    waiting.extend(module_files(name, root))
    return files


def digest(room: Room, root: Path) -> str:
    """Return a digest of the names and contents of everything that a room depends on."""
    lines = [
        f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(closure(room, root))
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def today() -> date:
    return datetime.now(UTC).date()


def state(name: str, room: Room, root: Path) -> State:
    """Return whether a room is old."""
    contents = digest(room, root)
    passes = [each for each in passes_of(name, root) if each["digest"] == contents]
    if not passes:
        return State(True, f"{RECORD} has no pass with the files as they are now")
    try:
        passed = date.fromisoformat(passes[-1]["on"])
    except (LookupError, TypeError, ValueError):
        return State(True, f"{RECORD} doesn't say when it passed")
    age = (today() - passed).days
    if not -1 <= age <= MAX_AGE_DAYS:  # the clock of the machine on which it passed may be a day ahead
        return State(True, f"it passed on {passed}, which is not within the last {MAX_AGE_DAYS} days")
    return State(False, f"it passed on {passed}, and nothing that it depends on is different")


def read_record(root: Path) -> dict[str, Any]:
    """Return the record; an empty one if there is none that can be read."""
    try:
        return dict(json.loads((root / RECORD).read_bytes()))
    except (OSError, TypeError, ValueError):
        return {}


def passes_of(name: str, root: Path) -> list[dict[str, Any]]:
    """Return the recorded passes of a room, earliest first."""
    passes = read_record(root).get(name)
    if not isinstance(passes, list):
        return []
    return [each for each in passes if isinstance(each, dict) and isinstance(each.get("digest"), str)]


def not_committed(root: Path) -> list[str]:
    """Return the paths that differ from the commit, other than the record's."""
    status = ["git", "status", "--porcelain", "--no-renames", "-z", "--untracked-files=all"]
    lines = subprocess.run(status, cwd=root, capture_output=True, text=True, check=True).stdout
    paths = [line[3:] for line in lines.split("\0") if line]
    return [path for path in paths if path != str(RECORD)]


def record_pass(name: str, room: Room, root: Path, contents: str, took_s: float) -> str:
    """Record that a suite passed with the contents of some digest; return what was done, or why nothing was."""
    if contents != digest(room, root):
        return f"{name} passed, but a file that it depends on changed meanwhile, so nothing is recorded"
    if paths := not_committed(root):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return f"{name} passed. It isn't recorded, because this isn't the tree of a commit: {paths[0]}{more}"
    with record_of(root) as record:
        passes = [each for each in passes_of(name, root) if each["digest"] != contents]
        passes.append({"digest": contents, "on": today().isoformat(), "took_s": round(took_s)})
        record[name] = passes[-KEPT:]
    return f"{name} passed, and {RECORD} says so now. Commit it, and CI need not run {name} again"


@contextmanager
def record_of(root: Path) -> Iterator[dict[str, Any]]:
    """Give the record, and write it in the end. Only one process at a time has it."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = read_record(root)
        yield record
        path = root / RECORD
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def pytest_arguments(name: str, root: Path) -> list[str]:
    """Return the test files of a room, or the options that leave out those of all rooms."""
    if name == "ordinary":
        return [f"--ignore={path}" for room in ROOMS.values() for path in tests_of(room, root)]
    return tests_of(ROOMS[name], root)


def tests_of(room: Room, root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in matches(room.tests, root)]


def main(verb: str, *arguments: str) -> int:
    """Carry out a command; returns the exit status."""
    root = Path(__file__).resolve().parent.parent
    match verb, *arguments:
        case ["old"]:
            states = {name: state(name, room, root) for name, room in ROOMS.items()}
            lines = [f"{name}: {'old' if it.old else 'passed'}: {it.reason}" for name, it in states.items()]
        case ["files", name]:
            lines = sorted(str(path.relative_to(root)) for path in closure(ROOMS[name], root))
        case ["tests", name]:
            lines = pytest_arguments(name, root)
        case ["digest", name]:
            lines = [digest(ROOMS[name], root)]
        case ["passed", name, contents, took_s]:
            lines = [record_pass(name, ROOMS[name], root, contents, float(took_s))]
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
