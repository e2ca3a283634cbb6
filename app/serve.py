"""Runs burnish until a signal stops it: one process per data directory, one socket, a clean end."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import uvloop
from starlette.types import ASGIApp

from burnish.app.app import running
from burnish.app.asgi import App
from burnish.config.config import Config
from burnish.learner.managed_engine import with_engine
from burnish.proxy import data_dir, listening, server_file
from burnish.proxy.cloud import with_clouds
from burnish.proxy.http.listener import ErrorBody, Server, tune_interpreter
from burnish.proxy.http.listener import server as server_of
from burnish.proxy.program_log import kept
from burnish.proxy.surfaces import error_at

logger = logging.getLogger(__name__)

# A stream needs two, and many systems give a program 1024 by default.
DESCRIPTORS = 65_536
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(config: Config, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; call ``on_ready`` with the URL once requests are accepted.

    Raises ConfigError (data directory, port), adapters.errors.EngineError (no engine, no model).
    """
    os.umask(0o077)  # for every file and every child, whatever the user's umask
    _ask_for_descriptors()
    data_dir.prepare(config.data_dir)
    with data_dir.locked(config.data_dir), kept(config):
        config.server_file.unlink(missing_ok=True)  # one that was killed has left it
        handed = listening.handed_over(config)
        with handed or listening.bound(config) as listener, suppress(KeyboardInterrupt):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(config, listener, on_ready, as_service=handed is not None))


async def _serve(
    config: Config, listener: socket.socket, on_ready: Callable[[str], None], *, as_service: bool
) -> None:
    url = listening.url(config.host, listener.getsockname()[1])

    def ready() -> None:
        tune_interpreter()
        try:
            server_file.write(config, url)
        except OSError as error:  # answers don't need it
            logger.error(
                "commands need --url %s, because %s can't be written: %s", url, config.server_file, error
            )
            config.server_file.unlink(missing_ok=True)
        on_ready(url)

    try:
        async with (
            with_clouds(config) as clouds,  # first: what is wrong there shows in seconds
            with_engine(clouds) as (served, engine),
            running(served, upgrades=as_service, engine=engine) as app,
        ):
            await _answer(app, served, listener, ready)
    finally:
        config.server_file.unlink(missing_ok=True)


def server_for(app: ASGIApp, config: Config, error_body: ErrorBody = error_at) -> Server:
    return server_of(
        app, patience_s=config.request_timeout_s, stop_s=config.stop_timeout_s, error_body=error_body
    )


async def _answer(app: App, config: Config, listener: socket.socket, ready: Callable[[], None]) -> None:
    server = server_for(app, config)

    def stop(*_: object) -> None:
        if not server.should_exit:  # a second signal may come when its loop is closed
            server.should_exit = True

    # uvicorn catches signals while it serves, and raises them again after it has stopped, but our parts must still
    # close. One that comes before, as soon as somebody has read that burnish is up, must not be lost.
    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    with listening.for_engine_page(config, listener) as page:
        sockets = [listener, page] if page else [listener]
        app.engine_port = page.getsockname()[1] if page else None
        # Whoever reads that burnish is up may connect before uvicorn listens.
        for each in sockets:
            each.listen(server.config.backlog)
        ready()
        await server.serve(sockets=sockets)


def _ask_for_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a second limit that can't be read
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
