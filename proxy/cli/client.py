"""The commands' way to a running burnish: where it is, and its answers or its errors in one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx

from burnish.proxy.cli.errors import CommandFailed, NotRunning, WrongUsage
from burnish.proxy.config import Config, load_config
from burnish.proxy.serve import SERVER_FILE

URL_VARIABLE = "BURNISH_URL"
# A swap may have to wait for an engine to start on a busy machine; reading the log takes milliseconds.
TIMEOUT_S = 180.0
USAGE_ERRORS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


def find(url: str | None, config: Config) -> str:
    """Return where burnish is: ``--url``, else BURNISH_URL, else the one on this data directory, else its default."""
    if url or (url := os.environ.get(URL_VARIABLE)):
        return url.rstrip("/")
    try:
        return str(json.loads((config.data_dir / SERVER_FILE).read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError):
        return f"http://127.0.0.1:{config.port}"


class Proxy:
    """A running burnish."""

    def __init__(self, url: str | None = None) -> None:
        """Find it; nothing is sent yet."""
        config = load_config()
        self.url = find(url, config)
        key = config.api_key
        headers = {"x-burnish-key": key.get_secret_value()} if key else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S)

    def get(self, path: str, **params: Any) -> Any:
        """Read something. Raises NotRunning, CommandFailed."""
        given = {name: value for name, value in params.items() if value is not None}
        return self._checked("GET", path, params=given)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Do something. Raises NotRunning, CommandFailed, WrongUsage."""
        return self._checked("POST", path, json={k: v for k, v in body.items() if v is not None})

    def delete(self, path: str) -> Any:
        """Take something back. Raises NotRunning, CommandFailed."""
        return self._checked("DELETE", path)

    @contextmanager
    def stream(self, path: str, body: dict[str, Any]) -> Iterator[httpx.Response]:
        """Post and read the answer as it comes. Raises NotRunning, CommandFailed."""
        try:
            with self._http.stream("POST", path, json=body) as response:
                if response.is_error:
                    response.read()
                    raise _failed(response)
                yield response
        except httpx.TransportError as error:
            raise self._not_running(error) from error

    def _checked(self, method: str, path: str, **options: Any) -> Any:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise self._not_running(error) from error
        if response.is_error:
            raise _failed(response)
        return response.json()

    def _not_running(self, error: httpx.TransportError) -> CommandFailed:
        if isinstance(error, httpx.ConnectError):
            return NotRunning(f"no burnish answers at {self.url}. Start it with: burnish up")
        return CommandFailed(f"burnish at {self.url} broke off: {error or type(error).__name__}")


def _failed(response: httpx.Response) -> CommandFailed:
    try:
        error = response.json()["error"]
        message = str(error["message"])
        ids = [f"  {each['completion_id']}" for each in error.get("candidates", ())]
    except (ValueError, KeyError, TypeError):
        message, ids = f"{response.url} answered {response.status_code}", []
    kind = WrongUsage if response.status_code in USAGE_ERRORS else CommandFailed
    return kind("\n".join([message, *ids]))
