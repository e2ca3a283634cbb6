"""What `burnish demo` checks before it spends minutes, and what it leaves behind when it is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.program import NOBODY, call, run
from tests.support.upstream import reply, upstream


@pytest.mark.parametrize("out", ["/proc/x", __file__])
def test_a_folder_that_cannot_be_written_is_refused_at_once(out: str) -> None:
    done = call("demo", "--out", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"can't write into the folder {out}" in done.stderr


async def test_an_upstream_that_cannot_be_trained_is_one_sentence(tmp_path: Path) -> None:
    async with upstream(reply(b"{}")) as other:
        for url in (NOBODY, other.url):
            done = await asyncio.to_thread(run, "demo", "--upstream", url, "--out", str(tmp_path))
            assert (done.returncode, done.stdout) == (1, ""), done.stderr
            assert "burnish can't learn here: versions cannot be swapped: " in done.stderr
            assert "Traceback" not in done.stderr


def test_sigterm_stops_the_burnish_that_it_runs(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "burnish", "demo", "--out", str(tmp_path)],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not (found := list(tmp_path.glob("burnish-demo-*/server.json"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = json.loads(found[0].read_text())["pid"]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (128 + signal.SIGTERM, b"")
    assert not list(tmp_path.glob("burnish-demo-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
