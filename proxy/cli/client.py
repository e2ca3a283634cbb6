"""The commands' way to a running burnish: where it is, and its answers or its errors in one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from burnish.proxy.cli.errors import CommandFailed, NotRunning, WrongUsage
from burnish.proxy.cli.settings import read_settings
from burnish.proxy.client_headers import KEY_HEADER
from burnish.proxy.config import Config, default_config_file

URL_VARIABLE = "BURNISH_URL"
# A swap may have to wait for an engine to start on a busy machine; reading the log takes milliseconds.
TIMEOUT_S = 180.0
# Nobody takes longer to accept a connection, unless the address is wrong.
CONNECT_TIMEOUT_S = 10.0
USAGE_ERRORS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


def find(url: str | None, config: Config) -> str:
    """Return where burnish is: ``--url``, else BURNISH_URL, else the one on this data directory, else its default."""
    if url or (url := os.environ.get(URL_VARIABLE)):
        return url.rstrip("/").removesuffix("/v1")
    try:
        return str(json.loads(config.server_file.read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, LookupError, TypeError):
        return f"http://127.0.0.1:{config.port}"


def key_header(config: Config) -> dict[str, str]:
    """Return the header that opens a burnish with an api_key."""
    return {KEY_HEADER: config.api_key.get_secret_value()} if config.api_key else {}


def in_path(identifier: str) -> str:
    """Return what a person typed as one segment of a path."""
    if not identifier.strip("."):
        raise WrongUsage(f"{identifier!r} is no id; `burnish history` and `burnish instructions` list them")
    return quote(identifier, safe="")


class Proxy:
    """A running burnish."""

    def __init__(self, url: str | None = None) -> None:
        """Find it; nothing is sent yet. Raises WrongUsage for a URL that is none."""
        config = read_settings()
        self.url = find(url, config)
        self._has_key = config.api_key is not None
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=key_header(config),
                timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
                trust_env=False,  # HTTP_PROXY and netrc are about the world outside
            )
        except httpx.InvalidURL as error:
            raise WrongUsage(f"{self.url!r} is no URL such as http://127.0.0.1:8787: {error}") from error

    def get(self, path: str, **params: Any) -> Any:
        """Read something. Raises NotRunning, CommandFailed."""
        given = {name: value for name, value in params.items() if value is not None}
        return self._checked("GET", path, params=given)

    def post(self, path: str, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        """Do something. Raises NotRunning, CommandFailed, WrongUsage."""
        said = {k: v for k, v in body.items() if v is not None}
        return self._checked("POST", path, json=said, headers=headers)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Change something. Raises NotRunning, CommandFailed, WrongUsage."""
        return self._checked("PATCH", path, json=body)

    def delete(self, path: str) -> Any:
        """Take something back. Raises NotRunning, CommandFailed."""
        return self._checked("DELETE", path)

    @contextmanager
    def stream(self, path: str, body: dict[str, Any]) -> Iterator[httpx.Response]:
        """Post and read the answer as it comes. Raises NotRunning, CommandFailed."""
        try:
            with self._http.stream("POST", path, json=body) as response:
                if not response.is_success:
                    response.read()
                    raise _refused(response) or CommandFailed(_unexplained(response))
                yield response
        except httpx.TransportError as error:
            raise self._not_reached(error) from error

    def _checked(self, method: str, path: str, **options: Any) -> Any:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise self._not_reached(error) from error
        if response.is_success and (content := _object(response)):
            return content
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            raise self._locked_out()
        raise _refused(response) or NotRunning(
            f"what answers at {self.url} is no burnish ({_unexplained(response)}): name yours with --url"
        )

    def _locked_out(self) -> CommandFailed:
        wrong = "another one than the one that is set here" if self._has_key else "and none is set here"
        return CommandFailed(
            f"burnish at {self.url} wants its api_key, {wrong}: set BURNISH_API_KEY, or api_key in "
            f"{default_config_file()}"
        )

    def _not_reached(self, error: httpx.TransportError) -> CommandFailed:
        if isinstance(error, httpx.UnsupportedProtocol):
            return WrongUsage(f"{self.url!r} is no URL such as http://127.0.0.1:8787")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return NotRunning(f"no burnish answers at {self.url}. Start it with: burnish up")
        return CommandFailed(f"burnish at {self.url} broke off: {error or type(error).__name__}")


def _object(response: httpx.Response) -> dict[str, Any] | None:
    """Return a JSON object, which all that burnish says of itself is; None for anything else."""
    try:
        content = response.json()
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _refused(response: httpx.Response) -> CommandFailed | None:
    """Turn an OpenAI error envelope into a sentence; None when there is none."""
    error = (_object(response) or {}).get("error")
    if not isinstance(error, dict) or "message" not in error:
        return None
    ids = [f"  {each['completion_id']}" for each in error.get("candidates", ())]
    kind = WrongUsage if response.status_code in USAGE_ERRORS else CommandFailed
    return kind("\n".join([str(error["message"]), *ids]))


def _unexplained(response: httpx.Response) -> str:
    return f"{response.url.path} answered {response.status_code}"
