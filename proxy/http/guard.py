"""Decides which requests may go on: by host name, by web page, by key; never to the management of an engine.

A web page in the user's browser can reach 127.0.0.1 (DNS rebinding, CSRF). It cannot forge ``Host``,
``Origin`` or ``Sec-Fetch-Site``, so those decide. Only ``scope["path"]`` is trusted, never a URL built from
the Host header (CVE-2026-49468).
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from burnish.proxy.client_headers import KEY_HEADER
from burnish.proxy.config import Config, is_loopback
from burnish.proxy.errors import Forbidden, InvalidRequest, Unauthorized
from burnish.proxy.http.headers import CREDENTIALS, Named, RawHeaders, first

MANAGEMENT = (
    # vLLM, SGLang: adapters, weights, sleep
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter",
    "/sleep", "/wake_up", "/release_kv_cache_memory", "/update_weights", "/reset_prefix_cache", "/flush_cache",
    "/pause", "/resume",
    "/init_weights_update_group", "/release_memory_occupation", "/resume_memory_occupation", "/collective_rpc",
    "/server_info", "/start_profile", "/stop_profile", "/abort_request", "/scale_elastic_ep",
    # llama.cpp
    "/lora-adapters", "/slots", "/props", "/models/load", "/models/unload",
    # Ollama
    "/api/create", "/api/pull", "/api/push", "/api/blobs", "/api/delete", "/api/copy",
)  # fmt: skip
"""Routes that change an engine. Only burnish may call them."""


class Guard:
    def __init__(self, config: Config) -> None:
        self._hosts = {host.lower() for host in config.allowed_hosts}
        self._origins = {origin.lower().rstrip("/") for origin in config.allowed_origins}
        self._open = not is_loopback(config.host)
        self._key = config.api_key.get_secret_value().encode() if config.api_key else None
        # A client sends the same name with every request.
        self._is_ours = lru_cache(maxsize=64)(self._names_us)

    def check(self, path: str, headers: Named) -> None:
        """Raise Forbidden, Unauthorized or InvalidRequest unless the request may go on."""
        manages = _manages(path)
        host = first(headers, b"host") or ""
        if not self._is_ours(host):
            raise Forbidden(
                f"Host {host!r} is not a name of this machine. If it is yours, add it to allowed_hosts.",
                code="host_not_allowed",
            )
        self._check_origin(host, headers)
        if self._key is not None:
            self._check_key(headers)
        if manages:
            raise Forbidden(
                f"{path} manages the engine, which burnish does itself. Use `burnish adapters`, or call the engine "
                "directly.",
                code="management_route",
            )

    def without_key(self, headers: RawHeaders) -> RawHeaders:
        """Drop burnish's own key from headers that go upstream."""
        if self._key is None:
            return headers
        return [
            (name, value)
            for name, value in headers
            if not (name.lower() in CREDENTIALS and self._matches(_secret(name.lower(), value)))
        ]

    def _names_us(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname or ""
        # With a key, an attacker's page gains nothing from a name of its own.
        return is_loopback(name) or name in self._hosts or (self._open and self._key is not None)

    def _check_origin(self, host: str, headers: Named) -> None:
        origin = first(headers, b"origin")
        if origin is None:
            if first(headers, b"sec-fetch-site") in ("cross-site", "same-site"):
                raise Forbidden("a web page of another site may not call burnish", code="origin_not_allowed")
            return
        own = (f"http://{host}".lower(), f"https://{host}".lower())
        if origin.lower() in self._origins or origin.lower() in own:
            return
        raise Forbidden(
            f"Origin {origin!r} may not call burnish. If you trust that page, add it to allowed_origins.",
            code="origin_not_allowed",
        )

    def _check_key(self, headers: Named) -> None:
        given = [(name, headers[name]) for name in (KEY_HEADER.encode(), *CREDENTIALS) if name in headers]
        if any(self._matches(_secret(name, value)) for name, value in given):
            return
        raise Unauthorized(
            "this burnish needs its api_key: send it as Authorization: Bearer <key>, or in x-burnish-key."
        )

    def _matches(self, given: bytes) -> bool:
        return self._key is not None and hmac.compare_digest(given, self._key)


def _secret(name: bytes, value: bytes) -> bytes:
    if name != b"authorization":
        return value
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def refuse_traversal(path: str) -> None:
    """Refuse a path that the next hop could understand differently. Raises InvalidRequest."""
    decoded = _decoded(path)
    if "\\" in decoded or any(part in (".", "..") for part in decoded.split("/")) or "\0" in decoded:
        raise InvalidRequest(f"the path {path!r} must not contain . or .. or a backslash")


@lru_cache(maxsize=256)
def _manages(path: str) -> bool:
    """Check for a management route. Raises InvalidRequest, which isn't cached."""
    refuse_traversal(path)
    return is_management(path)


def is_management(path: str) -> bool:
    """Check whether a path, in any spelling, is a management route of a known engine."""
    plain = "/" + "/".join(part for part in _decoded(path).lower().split("/") if part)
    return any(
        plain == route or plain.startswith(route + "/")
        for each in MANAGEMENT
        for route in (each, "/v1" + each)
    )


def _decoded(path: str) -> str:
    """Undo percent-encoding until nothing changes (``%252e`` is a dot to a server that decodes twice)."""
    while (decoded := unquote(path)) != path:
        path = decoded
    return path
