"""The socket at which burnish listens: its own, or the one that a service manager holds open between two runs.

Clients that connect while burnish starts again wait in the queue of that socket, so none of them is refused.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from burnish.config.config import Config
from burnish.proxy.http.errors import ConfigError

FIRST_FD = 3
"""First descriptor that systemd hands over (sd_listen_fds(3))."""
PORTS_TRIED, LAST_PORT = 20, 65535
LAUNCHD_NAME = "Listeners"
"""Name of the socket in the launchd agent."""


def address(config: Config) -> tuple[str, int]:
    """Return the IP address and the port of a configuration. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        addresses = socket.getaddrinfo(config.host, config.port, family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"host {config.host!r} has no address ({error.strerror})", param="host") from error
    return str(addresses[0][4][0]), int(addresses[0][4][1])


def url(host: str, port: int) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104  (named, not bound)
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def for_engine_page(config: Config, main: socket.socket) -> Iterator[socket.socket | None]:
    """Give a socket for the engine's own page, beside the one at which burnish listens; None: there is no page.

    Its port should stay the same: a browser keeps what the page stores by it. Raises ConfigError.
    """
    if not config.upstream:
        yield None
        return
    first_port = main.getsockname()[1] + 1
    if config.engine_page_port is not None:
        ports: Iterable[int] = (config.engine_page_port,)
    else:
        ports = range(first_port, min(first_port + PORTS_TRIED, LAST_PORT)) if config.port else (0,)
    with socket.socket(main.family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for port in ports:
            try:
                listener.bind((config.host, port))
            except OSError as error:
                if config.engine_page_port:
                    raise ConfigError(
                        f"cannot listen on {config.host}:{port} ({error.strerror}): pick another engine_page_port",
                        param="engine_page_port",
                    ) from error
            else:
                yield listener
                return
    yield None


@contextmanager
def bound(config: Config) -> Iterator[socket.socket]:
    """Give a socket bound to the configured address. Raises ConfigError."""
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
        yield listener


def handed_over(config: Config) -> socket.socket | None:
    """Return the socket that a service manager gave this process; None without one.

    Raises ConfigError if it isn't the configured address: the service was installed for another one.
    """
    descriptor = _from_launchd() if sys.platform == "darwin" else _from_systemd()
    if descriptor is None:
        return None
    with socket.socket(fileno=descriptor) as listener:
        family, there, descriptor = listener.family, listener.getsockname()[:2], listener.detach()
    if there != address(config):
        os.close(descriptor)
        raise ConfigError(
            f"the service listens on {url(*there)}, but the configuration says {config.host}:{config.port}: "
            "run `burnish service install` again",
            param="port",
        )
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, descriptor)


def _from_systemd() -> int | None:
    """sd_listen_fds(3): children see the variables too, but they have another process ID."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not os.environ.get("LISTEN_FDS", "0").strip("0"):
        return None
    os.set_inheritable(FIRST_FD, False)
    return FIRST_FD


def _from_launchd() -> int | None:
    """launch_activate_socket(3); fails in a process that launchd didn't start."""
    system = ctypes.CDLL(None)
    descriptors, count = ctypes.POINTER(ctypes.c_int)(), ctypes.c_size_t()
    if system.launch_activate_socket(LAUNCHD_NAME.encode(), ctypes.byref(descriptors), ctypes.byref(count)):
        return None
    descriptor = descriptors[0] if count.value else None
    system.free(descriptors)
    if descriptor is not None:
        os.set_inheritable(descriptor, False)
    return descriptor
