"""After an upgrade, burnish ends when nothing is under way, and its service manager starts the new one.

A process that goes on would mix its old modules with new ones, which it imports later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution

from burnish.proxy.http.errors import ServiceError

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0
# Where requests never cease, they have waited long enough for a gap: those under way end, and new ones wait.
LONGEST_WAIT_S = 600.0
LOOK_EVERY_S = 0.25
PROGRAM_LIMIT_S = 60.0


async def stop_after_upgrade(
    in_run: Callable[[], bool], in_flight: Callable[[], int], check_every_s: float = CHECK_EVERY_S
) -> None:
    """Send SIGTERM to this process after an upgrade, once no run and no request is under way."""
    await _upgraded(check_every_s)
    logger.warning("burnish was upgraded: it starts again as soon as no run and no request is under way")
    loop = asyncio.get_running_loop()
    latest = loop.time() + LONGEST_WAIT_S
    while in_run() or (in_flight() and loop.time() < latest):  # noqa: ASYNC110  (a gap is no event)
        await asyncio.sleep(LOOK_EVERY_S)
    signal.raise_signal(signal.SIGTERM)


async def _upgraded(check_every_s: float) -> None:
    """Return when another burnish is installed, completely."""
    running = installed()
    before = running
    while True:
        await asyncio.sleep(check_every_s)
        now = await asyncio.to_thread(installed)
        # An installer writes for seconds.
        if now is not None and now == before != running:
            with suppress(ServiceError):
                await asyncio.to_thread(check_program)
                return
        before = now


def installed() -> str | None:
    """Return a digest of the installed files, as the installer recorded them; None while there is no record."""
    with suppress(PackageNotFoundError):
        if record := distribution("burnish").read_text("RECORD"):
            return sha256(record.encode()).hexdigest()
    return None


def check_program() -> None:
    """Raises ServiceError if the program that the service names doesn't run from elsewhere, e.g. half-installed."""
    line = [sys.executable, "-m", "burnish", "--version"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        subprocess.run(
            line, cwd="/", env=clean, capture_output=True, text=True, timeout=PROGRAM_LIMIT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no output"])[-1]
        raise ServiceError(f"`{' '.join(line)}` fails, so install burnish again: {last}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"`{' '.join(line)}` doesn't run, so install burnish again: {error}") from error
