"""Runs burnish until a signal stops it: one process per data directory, one socket, a clean end."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop

from burnish.adapters import durable
from burnish.proxy.app import running
from burnish.proxy.asgi import App
from burnish.proxy.config import Config
from burnish.proxy.errors import ConfigError
from burnish.proxy.http.listener import server as server_of
from burnish.proxy.http.listener import tune_interpreter
from burnish.proxy.surfaces import error_at
from burnish.proxy.workers.hub import Hub, run_workers

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
    prepare_data_dir(config.data_dir)
    with _locked(config.data_dir), _listening(config) as listener:
        with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, listener, on_ready))


async def _serve(config: Config, listener: socket.socket, on_ready: Callable[[str], None]) -> None:
    url = _url(config.host, listener)

    def ready() -> None:
        tune_interpreter()
        try:
            durable.replace(config.server_file, json.dumps({"url": url, "pid": os.getpid()}))
        except OSError as error:  # answers don't need it
            logger.error(
                "commands need --url %s, because %s can't be written: %s", url, config.server_file, error
            )
            config.server_file.unlink(missing_ok=True)
        on_ready(url)

    try:
        async with running(config) as (app, hub):
            if hub:
                await _with_workers(hub, config, listener, ready)
            else:
                await _alone(app, config, listener, ready)
    finally:
        config.server_file.unlink(missing_ok=True)


async def _alone(app: App, config: Config, listener: socket.socket, ready: Callable[[], None]) -> None:
    ready()
    # uvicorn raises the signal again after it has stopped, but our parts must still close.
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    await server_of(app, config, error_at).serve(sockets=[listener])


async def _with_workers(hub: Hub, config: Config, listener: socket.socket, ready: Callable[[], None]) -> None:
    stopping = asyncio.Event()
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await run_workers(hub, config, listener, stopping, ready)


def _ask_for_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a second limit that can't be read
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def prepare_data_dir(path: Path) -> None:
    """Create the data directory for its owner only. Raises ConfigError if it can't be written."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        probe = path / ".writable"
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError as error:
        if error.errno == errno.ENOSPC and path.is_dir():
            return  # answers go on, and the log tells
        raise _unwritable(path, error) from error


def _unwritable(data_dir: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the data directory {data_dir} cannot be written ({error.strerror}): "
        "make it writable, or name another with --data-dir",
        param="data_dir",
    )


@contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    """Lock the data directory: two processes on one log would train and swap against each other."""
    try:
        lock = (data_dir / "lock").open("w", encoding="utf-8")
    except OSError as error:
        raise _unwritable(data_dir, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another burnish already uses {data_dir}: stop it, or name another folder with --data-dir",
                param="data_dir",
            ) from error
        yield


@contextmanager
def _listening(config: Config) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with IPPROTO_TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((config.host, config.port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {config.host}:{config.port} ({error.strerror}): "
                "is another burnish running? Pick another port with --port",
                param="port",
            ) from error
        listener.set_inheritable(False)
        yield listener


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    if host in ("0.0.0.0", "::"):  # noqa: S104  (named, not bound)
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
