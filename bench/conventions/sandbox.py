"""Runs the code of an answer against hidden assertions, in a process of its own and in an empty folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.conventions.child import VERDICT

CHILD = Path(__file__).with_name("child.py")
# CPU is limited by the child itself; this ends code that only waits, on a machine however busy.
WALL_S = 60.0


def runs(code: str, function: str, assertions: Sequence[str]) -> bool:
    """Return whether a function does what the assertions want.

    It may take paths as texts or as ``Path``: either is right.
    """
    return _run(code, function, assertions, paths=False) or (
        any("at(" in assertion for assertion in assertions) and _run(code, function, assertions, paths=True)
    )


def _run(code: str, function: str, assertions: Sequence[str], *, paths: bool) -> bool:
    task = {"code": code, "function": function, "assertions": list(assertions), "paths": paths}
    with tempfile.TemporaryDirectory(prefix="burnish-answer-") as folder:
        try:
            child = subprocess.run(
                [sys.executable, "-I", "-S", "-X", "utf8", str(CHILD)],
                input=json.dumps(task).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={},
                timeout=WALL_S,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return False
    return child.stdout == VERDICT
