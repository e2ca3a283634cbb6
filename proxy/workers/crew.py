"""Starts the workers, replaces those that die, and stops them at the end."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from burnish.proxy.config import Config
from burnish.proxy.http.listener import GRACE_S
from burnish.proxy.workers.hub import Hub, Worker

logger = logging.getLogger(__name__)

# A worker that dies at once dies again, so the pause doubles up to a limit. It starts over when one has lived so long.
FIRST_PAUSE_S, LAST_PAUSE_S, LIVED_S = 0.1, 5.0, 30.0


async def serve(
    hub: Hub, config: Config, listener: socket.socket, stopping: asyncio.Event, on_ready: Callable[[], None]
) -> None:
    """Run ``config.workers`` processes that answer at a socket until ``stopping`` is set, and all of them have ended.

    ``on_ready`` is called when the first of them takes requests.
    """
    ready = asyncio.Event()

    async def report() -> None:
        await ready.wait()
        on_ready()

    async with asyncio.TaskGroup() as group:
        reporting = group.create_task(report())
        crew = [
            group.create_task(_keep_running(hub, config, listener, stopping, ready))
            for _ in range(config.workers)
        ]
        await asyncio.wait(crew)
        reporting.cancel()


async def _keep_running(
    hub: Hub, config: Config, listener: socket.socket, stopping: asyncio.Event, ready: asyncio.Event
) -> None:
    loop = asyncio.get_running_loop()
    pause_s = FIRST_PAUSE_S
    while not stopping.is_set():
        began = loop.time()
        status = await _run_one(hub, config, listener, stopping, ready)
        if stopping.is_set():
            return
        logger.error(
            "a worker ended (status %d): its requests were cut, and another worker takes its place", status
        )
        pause_s = FIRST_PAUSE_S if loop.time() - began > LIVED_S else min(2 * pause_s, LAST_PAUSE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stopping.wait()


async def _run_one(
    hub: Hub, config: Config, listener: socket.socket, stopping: asyncio.Event, ready: asyncio.Event
) -> int:
    """Run one worker to its end and return its exit status."""
    ours, theirs = socket.socketpair()
    with theirs:
        fds = (listener.fileno(), theirs.fileno())
        # A session of its own: Ctrl-C in the terminal reaches only this process, which lets the workers finish.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "burnish.proxy.workers.worker", *map(str, fds)),
            pass_fds=fds,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    worker = Worker(hub)
    await worker.link.connect(ours)
    worker.link.send("config", config)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in (_stop(worker, stopping), _report_up(worker, ready))]
        try:
            await hub.serve(worker)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await process.wait()
        finally:
            for task in tasks:
                task.cancel()
            if process.returncode is None:
                process.kill()
    return await process.wait()


async def _stop(worker: Worker, stopping: asyncio.Event) -> None:
    await stopping.wait()
    worker.link.send("stop")
    await asyncio.sleep(2 * GRACE_S)
    worker.link.close()  # it did not end by itself


async def _report_up(worker: Worker, ready: asyncio.Event) -> None:
    await worker.up.wait()
    ready.set()
