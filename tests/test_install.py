"""Ctrl-C at any step of ``scripts/up`` ends it at once, and the next ``scripts/up`` goes on from there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.execute import execute
from tests.support.patience import within

ROOT = Path(__file__).parents[1]
FILES = ("scripts/up", "scripts/install", "pyproject.toml", "constraints.txt")
INSTALLER = """#!/usr/bin/env bash
# Python, pip and uv, as far as scripts/install sees them: each call is noted, and one waits to be interrupted.
call="$(basename "$0") $*"
step() { # what it does, and half of it is there when it is interrupted
  echo "$1" >> "$NOTES"
  if [ "$1" = "${STOP_AT:-}" ]; then
    trap 'exit 1' INT # as pip does
    echo > "$REACHED"
    sleep 600 &
    wait
  fi
}
case $call in
  *"sys.version_info"*) ;;
  *" -m venv "*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; step venv; touch .venv/pip ;;
  *" show -q pip") [ -f .venv/pip ] ;;
  *" install -q uv") step uv; cp "$0" .venv/bin/uv ;;
  "uv --version") ;;
  *"import torch") [ -f .venv/torch ] ;;
  *torch*) step torch; touch .venv/torch ;;
  *"--group dev"*) step dev ;;
  *"pip install"*) step burnish; cp "$0" .venv/bin/burnish ;;
  *ensure_small_model*) step model ;;
  "burnish up --port 5") step up ;;
  "python -") cat > /dev/null ;;
  *) echo "unexpected: $call" >> "$NOTES" ;;
esac
"""
STEPS = ["venv", "uv", "torch", "burnish", "model"]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "scripts").mkdir(parents=True)
    for name in FILES:
        shutil.copy2(ROOT / name, folder / name)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    ours = {"NOTES": str(folder / "notes"), "REACHED": str(folder / "reached")}
    return ours | {"BURNISH_PYTHON": str(folder / "installer")} | more


def notes(folder: Path) -> list[str]:
    return (folder / "notes").read_text().splitlines()


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_step_is_the_last_one_and_the_next_run_goes_on(clone: Path, step: str) -> None:
    installer = clone / "installer"
    installer.write_text(INSTALLER)
    installer.chmod(0o755)
    os.mkfifo(clone / "reached")
    process = subprocess.Popen(
        ["scripts/up", "--port", "5"],
        cwd=clone,
        env=os.environ | environment(clone, STOP_AT=step),
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        (clone / "reached").read_text()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(within(30)) == 130
    finally:
        process.kill()
    done = STEPS.index(step)
    assert notes(clone) == STEPS[: done + 1]
    (clone / "notes").unlink()
    for steps in ([*STEPS[min(done, STEPS.index("burnish")) :], "up"], ["up"]):
        again = execute("scripts/up", "--port", "5", cwd=clone, env=environment(clone))
        assert (again.returncode, notes(clone)) == (0, steps), again.stderr
        (clone / "notes").unlink()


def test_a_half_made_environment_is_made_anew_and_half_a_package_forgotten(clone: Path) -> None:
    """With a real Python; the index is cut off, so it ends at the first package."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "BURNISH_PYTHON": sys.executable}
    process = subprocess.Popen(
        ["scripts/install"],
        cwd=clone, env=os.environ | environment(clone, **offline), start_new_session=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    python = clone / ".venv/bin/python"
    while not python.exists() and process.poll() is None:
        pass
    os.killpg(process.pid, signal.SIGINT)
    process.wait(within(60))

    def again() -> str:
        done = execute("scripts/install", cwd=clone, env=environment(clone, **offline), limit_s=120)
        assert done.returncode == 1
        return done.stderr

    assert "installing uv" in again()
    assert execute(python, "-m", "pip", "--version").returncode == 0
    (packages,) = (clone / ".venv/lib").glob("python*/site-packages")
    for name in ("half", "whole", "lost"):
        folder = packages / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (packages / "whole-1.0.dist-info/RECORD").write_text("whole-1.0.dist-info/METADATA,,\n")
    (packages / "lost-1.0.dist-info/RECORD").write_text("lost-1.0.dist-info/METADATA,,\nlost.py,,\n")
    assert "going on with an installation that was interrupted" in again()
    left = {each.name.partition("-")[0] for each in packages.glob("*.dist-info")}
    assert {"pip", "whole"} <= left
    assert left.isdisjoint({"half", "lost"})
