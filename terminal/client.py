"""How commands talk to a running burnish: where it is, its answers, and its errors in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from burnish.config.config import Config, default_config_file, load_config, server_url
from burnish.config.settings import URL_VARIABLE
from burnish.proxy import listening, server_file
from burnish.proxy.client_headers import KEY_HEADER
from burnish.proxy.data_dir import in_use
from burnish.proxy.http.errors import ConfigError
from burnish.terminal.errors import CommandFailed, NotRunning, WrongUsage

# A swap may have to wait for an engine to start on a busy machine; reading the log takes milliseconds.
TIMEOUT_S = 180.0
# Accepting a connection takes milliseconds unless the address is wrong.
CONNECT_TIMEOUT_S = 10.0
CHUNK_BYTES = 65_536
USAGE_ERRORS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
CONNECTIONS = {"http": HTTPConnection, "https": HTTPSConnection}

Body = dict[str, Any] | None
Headers = Mapping[str, str] | None


def read_settings(flags: dict[str, Any] | None = None, *, file: Path | None = None) -> Config:
    """Read flags, environment and file. Raises WrongUsage, which names every wrong key."""
    try:
        return load_config(flags, file=file)
    except ConfigError as error:
        raise WrongUsage(str(error)) from error


class Address(NamedTuple):
    """The address of a burnish."""

    url: str
    absent: str = ""
    """Why no request may go there: burnish isn't up, and whatever listens there is somebody else's."""


def find(url: str | None, config: Config) -> Address:
    """Return the address: ``--url``, else BURNISH_URL, else that of the burnish that runs with the data directory.

    If none does, it is where one would run. Raises WrongUsage.
    """
    try:
        if url or (url := server_url()):
            if "@" in url:
                raise WrongUsage(
                    "burnish's address must not contain a password (@): set BURNISH_API_KEY instead"
                )
            return Address(url.rstrip("/").removesuffix("/v1"))
        if server := server_file.running(config):
            return Address(server.url)
    except ConfigError as error:
        raise WrongUsage(error.message) from error
    if in_use(config.data_dir):
        absent = f"burnish, with the data in {config.data_dir}, is starting: try again in a moment"
    else:
        absent = (
            f"burnish isn't running with the data in {config.data_dir}. Start it with: burnish up. "
            f"If yours is elsewhere, name its address with --url or {URL_VARIABLE}"
        )
    return Address(listening.url(config.host, config.port), absent)


def key_header(config: Config) -> dict[str, str]:
    """Return the header with burnish's admin_key, else its api_key, if one is set."""
    key = config.admin_key or config.api_key
    return {KEY_HEADER: key.get_secret_value()} if key else {}


def in_path(identifier: str) -> str:
    """Quote a typed ID for use as one segment of a path. Raises WrongUsage."""
    if not identifier.strip("."):
        raise WrongUsage(
            f"{identifier!r} isn't an ID: copy one from `burnish history` or `burnish instructions`"
        )
    return quote(identifier, safe="")


class Proxy:
    """A running burnish. Each request opens a connection of its own.

    http.client instead of httpx, which takes longer to import than a command takes to run.
    """

    def __init__(self, url: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Find burnish without connecting to it. Raises WrongUsage for an invalid URL."""
        config = read_settings()
        self._timeout_s = timeout_s
        self.url, self._absent = find(url, config)
        self._headers = key_header(config)
        try:
            parts = urlsplit(self.url)
            self._host, self._port, self._prefix = parts.hostname or "", parts.port, parts.path
            self._connection = CONNECTIONS[parts.scheme if parts.hostname else ""]
        except (ValueError, LookupError) as error:
            raise WrongUsage(f"{self.url!r} isn't a URL such as http://127.0.0.1:8787") from error

    def get(self, path: str, **params: Any) -> Any:
        query = urlencode({name: param for name, param in params.items() if param is not None})
        return self._checked("GET", f"{path}?{query}" if query else path)

    def post(self, path: str, body: dict[str, Any], headers: Headers = None) -> Any:
        fields = {name: field for name, field in body.items() if field is not None}
        return self._checked("POST", path, fields, headers)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self._checked("PATCH", path, body)

    def delete(self, path: str) -> Any:
        return self._checked("DELETE", path)

    @contextmanager
    def stream(self, path: str, body: dict[str, Any]) -> Iterator[HTTPResponse]:
        """Post, and leave the answer to be read with ``chunks``. Raises NotRunning, CommandFailed."""
        with self._request("POST", path, body, None) as response:
            if not _succeeded(response):
                content = _object(self._body(response))
                raise _refusal(response.status, content) or CommandFailed(_unexplained(path, response))
            yield response

    def chunks(self, response: HTTPResponse) -> Iterator[bytes]:
        """Return the body as it arrives. Raises CommandFailed when the connection breaks off."""
        with self._broken_off():
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk

    def _checked(self, method: str, path: str, body: Body = None, headers: Headers = None) -> Any:
        with self._request(method, path, body, headers) as response:
            content = _object(self._body(response))
        if _succeeded(response) and content:
            return content
        if response.status == HTTPStatus.UNAUTHORIZED:
            raise self._unauthorized()
        raise _refusal(response.status, content) or NotRunning(
            f"the server at {self.url} isn't burnish ({_unexplained(path, response)}): "
            "give the address of yours with --url"
        )

    @contextmanager
    def _request(self, method: str, path: str, body: Body, headers: Headers) -> Iterator[HTTPResponse]:
        if self._absent:
            raise NotRunning(self._absent)
        request_headers = {**self._headers, **(headers or {}), "connection": "close"}
        content = None
        if body is not None:
            content = json.dumps(body, ensure_ascii=False).encode()
            request_headers["content-type"] = "application/json"
        connection = self._connection(self._host, self._port, timeout=CONNECT_TIMEOUT_S)
        try:
            try:
                connection.connect()
            except (OSError, ValueError) as error:  # ValueError: a host name that can't be encoded
                raise NotRunning(f"burnish isn't running at {self.url}. Start it with: burnish up") from error
            connection.sock.settimeout(self._timeout_s)
            with self._broken_off():
                connection.request(method, self._prefix + path, content, request_headers)
                response = connection.getresponse()
            with response:
                yield response
        finally:
            connection.close()

    def _body(self, response: HTTPResponse) -> bytes:
        with self._broken_off():
            return response.read()

    @contextmanager
    def _broken_off(self) -> Iterator[None]:
        try:
            yield
        except (OSError, HTTPException) as error:
            raise CommandFailed(
                f"the connection to burnish at {self.url} broke off: {error or type(error).__name__}"
            ) from error

    def _unauthorized(self) -> CommandFailed:
        fault = "and the one that is set here is wrong" if self._headers else "and none is set here"
        return CommandFailed(
            f"burnish at {self.url} needs its api_key or admin_key, {fault}: set BURNISH_API_KEY or "
            f"BURNISH_ADMIN_KEY, or api_key or admin_key in {default_config_file()}"
        )


def _succeeded(response: HTTPResponse) -> bool:
    return HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES


def _object(body: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None for anything else. All answers of burnish are objects."""
    try:
        content = json.loads(body)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _refusal(status: int, content: dict[str, Any] | None) -> CommandFailed | None:
    """Turn an OpenAI error envelope into an error; None for any other content."""
    error = (content or {}).get("error")
    if not isinstance(error, dict) or "message" not in error:
        return None
    ids = [f"  {completion['completion_id']}" for completion in error.get("candidates", ())]
    kind = WrongUsage if status in USAGE_ERRORS else CommandFailed
    return kind("\n".join([str(error["message"]), *ids]))


def _unexplained(path: str, response: HTTPResponse) -> str:
    return f"{path.partition('?')[0]} answered {response.status}"
