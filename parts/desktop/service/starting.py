"""Checks before a service starts, and waiting until it answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from burnish.config.config import Config
from burnish.parts.desktop.service.state import ServiceState
from burnish.proxy import data_dir, listening, server_file
from burnish.proxy.http.errors import ConfigError, ServiceError

# The first start may fetch the small model (98 MB).
START_LIMIT_S = 180.0
ANSWER_LIMIT_S = 2.0
LOOK_EVERY_S = 0.1


def check_can_start(config: Config, state: ServiceState) -> None:
    """Raises ServiceError if somebody else has the port or the data directory; ConfigError if it can't be written.

    The service that runs already may have both.
    """
    data_dir.prepare(config.data_dir)
    if not state.running:
        try:
            with data_dir.locked(config.data_dir):
                pass
        except ConfigError as error:
            raise ServiceError(
                f"another burnish already uses {config.data_dir}: stop it first (Ctrl-C in its terminal), "
                "or name another folder with --data-dir"
            ) from error
    if state.url != listening.url(*listening.address(config)):
        try:
            with listening.bound(config):
                pass
        except ConfigError as error:
            raise ServiceError(
                f"another program listens on {config.host}:{config.port}: stop it, or pick another port with --port"
            ) from error


def wait_until_up(config: Config, url: str, state: Callable[[], ServiceState]) -> bool:
    """Return True once burnish answers, False if it still starts after minutes. Raises ServiceError if it ends."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        service_state = state()
        if not service_state.running and service_state.trouble:
            raise ServiceError(service_state.trouble)
        if service_state.running and _serving(config) == service_state.pid and running_version(url):
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def running_version(url: str) -> str | None:
    """Return the version of the burnish at a URL; "" if it needs a key to say it, None if none answers in time."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_LIMIT_S)
    try:
        connection.request("GET", "/healthz", headers={"connection": "close"})
        return str(json.loads(connection.getresponse().read()).get("version", ""))
    except (OSError, HTTPException, ValueError, AttributeError):
        return None
    finally:
        connection.close()


def _serving(config: Config) -> int | None:
    """Return the process ID of the burnish that has begun to serve the data directory."""
    try:
        server = server_file.running(config)
    except ConfigError:
        return None
    return server.pid if server else None
