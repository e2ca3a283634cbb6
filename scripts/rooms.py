"""Decide which slow suites a change concerns: ``rooms.py due ROOM`` and ``rooms.py passed ROOM``.

A room is a suite that takes minutes and depends on a part of the code. ``.ci/rooms.json`` holds, per room, the commit
on which its suite last passed, and a digest of the contents of everything that it depends on. A suite need not run
while the digest is the same and the commit is at most 30 commits old. ``scripts/test --everything`` alone writes it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

RECORD = Path(".ci/rooms.json")
MAX_AGE = 30
"""Commits. What no digest sees (another machine, another kernel) is tested at least that often."""
NOT_DUE = 10
"""Exit status of ``due`` when the suite need not run. Any other one, a crash among them, means that it must."""


@dataclass(frozen=True, slots=True)
class Room:
    """Files, and all modules of ours that the Python files among them import."""

    files: tuple[str, ...]
    """Globs: the suite itself, what it starts in processes of their own, its data and its installer."""
    apart: tuple[str, ...]
    """Modules that it imports and that other tests answer for: nothing there, or only imported there, counts."""


# The suites start the whole of burnish, so that whole closures would be nearly everything, and every commit would touch
# every room. Each therefore leaves out what it cannot break by itself, or what faster tests hold to the same contract.
ROOMS = {
    # Hosts, converters and trainers with real engines. The proxy before them meets the same answers from the doubles
    # in tests/support; of it, only what asks and opens engines counts.
    "engines": Room(
        (
            "tests/engines/**/*.py",
            "tests/conftest.py",
            "adapters/hosts/**/*.py",
            "proxy/foreign_engine.py",
            "proxy/cloud.py",
            "proxy/litellm_child.py",
            "training/__main__.py",
            "training/backends/*.py",
            "scripts/engines",
            "constraints.txt",
        ),
        ("burnish.proxy", "bench"),
    ),
    # Agents and SDKs speak to the whole proxy. It runs with --no-train before an upstream.
    "clients": Room(
        (
            "tests/clients/**/*",
            "tests/conftest.py",
            "docs/agents.md",  # its snippets are run
            "proxy/cli/**/*.py",
            "proxy/agents/**/*",
            "scripts/clients",
            "constraints.txt",
        ),
        (
            "bench",
            "burnish.training",
            "burnish.proxy.learner",
            "burnish.adapters.gate",
            "burnish.adapters.convert",
        ),
    ),
    # Simulated users rate what the embedded engine answers: how ratings become lessons, versions and instructions.
    # How requests travel changes nothing about what is learnt.
    "learning": Room(
        (
            "bench/learning/**/*",
            "proxy/cli/demo/*.py",
            "proxy/learner/**/*.py",
            "proxy/instructions/**/*.py",
            "training/**/*",
            "adapters/gate/**/*.py",
            "adapters/hosts/embedded*.py",
            "constraints.txt",
        ),
        (
            "burnish.proxy.cli",
            "burnish.proxy.http",
            "burnish.proxy.relay",
            "burnish.proxy.surfaces",
            "burnish.proxy.translation",
            "burnish.proxy.observe",
        ),
    ),
}


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, at its top or in a function; a name may be that of an object."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif (
            isinstance(node, ast.ImportFrom) and not node.level
        ):  # ours are never relative: ruff refuses them
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


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


def closure(room: Room, root: Path) -> set[Path]:
    """Return every file that a room depends on."""
    found: set[Path] = set()
    waiting = [path.resolve() for glob in room.files for path in root.glob(glob) if path.is_file()]
    waiting = [path for path in waiting if "__pycache__" not in path.parts]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".py":
            for name in imported(path):
                if not any(f"{name}.".startswith(f"{apart}.") for apart in room.apart):
                    waiting.extend(module_files(name, root))
    return found


def digest(paths: Iterable[Path], root: Path) -> str:
    """Return a digest of names and contents."""
    lines = [
        f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in sorted(paths)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def decide(name: str, room: Room, root: Path) -> tuple[bool, str]:
    """Return whether a room's suite must run, and why or why not."""
    try:
        record = json.loads((root / RECORD).read_bytes())[name]
        passed, known = str(record["commit"]), str(record["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        return True, f"{RECORD} does not say when it last passed"
    counted = subprocess.run(
        ["git", "rev-list", "--count", f"{passed}..HEAD", "--"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    ancestor = subprocess.run(
        ["git", "merge-base", "--is-ancestor", passed, "HEAD"], cwd=root, capture_output=True, check=False
    )
    if counted.returncode or ancestor.returncode:
        return True, f"the commit on which it passed ({passed[:9]}) is not in this history"
    age = int(counted.stdout)
    if age > MAX_AGE:
        return True, f"it last passed {age} commits ago"
    if digest(closure(room, root), root) != known:
        return True, f"something that it depends on changed since {passed[:9]}"
    return False, f"nothing that it depends on changed since it passed, {age} commits ago"


def record_passed(name: str, room: Room, root: Path) -> None:
    """Write down that a room's suite passed on the files as they are now."""
    path = root / RECORD
    try:
        record = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        record = {}
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    record[name] = {"commit": head.stdout.strip(), "digest": digest(closure(room, root), root)}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def main(verb: str, name: str) -> int:
    """Carry out a command; returns the exit status."""
    root = Path(__file__).resolve().parent.parent
    if verb == "passed":
        record_passed(name, ROOMS[name], root)
        return 0
    due, why = decide(name, ROOMS[name], root)
    sys.stdout.write(f"{'running' if due else 'skipping'} {name}: {why}\n")
    return 0 if due else NOT_DUE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
