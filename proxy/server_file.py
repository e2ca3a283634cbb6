"""Which burnish runs with a data directory, and where. Commands send it their key, so they must not be led astray."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from burnish.config.config import Config, is_loopback
from burnish.proxy.data_dir import in_use
from burnish.proxy.http.errors import ConfigError
from burnish.system import durable

MOST_BYTES = 4096


class RunningServer(NamedTuple):
    url: str
    pid: int


def write(config: Config, url: str) -> None:
    """Raises OSError."""
    durable.replace(config.server_file, json.dumps({"url": url, "pid": os.getpid()}))


def running(config: Config) -> RunningServer | None:
    """Return the burnish that runs with the data directory of ``config``; None if there is none, or it isn't up yet.

    Raises ConfigError if its file may be somebody else's, or names another machine.
    """
    if not in_use(config.data_dir):
        return None  # what a killed one has left may lead to a stranger on its port
    path = config.server_file
    try:
        content = json.loads(_own_text(path))
        server = RunningServer(str(content["url"]), int(content["pid"]))
        host = urlsplit(server.url).hostname or ""
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{path} can't be believed: {error}. Name burnish's address with --url") from error
    if not is_loopback(host) and host != config.host:
        raise ConfigError(
            f"{path} says that burnish is at {server.url}, on another machine. If it is yours, name it with --url"
        )
    return server


def _own_text(path: Path) -> bytes:
    """Raises OSError, ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        is_now = os.fstat(descriptor)
        if (
            not stat.S_ISREG(is_now.st_mode)
            or is_now.st_uid != os.getuid()
            or stat.S_IMODE(is_now.st_mode) & 0o077
        ):
            raise ValueError("it isn't a file that only you can read and write (mode 600)")
        return file.read(MOST_BYTES)
