from __future__ import annotations

import pytest

from burnish.proxy.config import load_config
from burnish.proxy.errors import BurnishError, Forbidden, InvalidRequest, Unauthorized
from burnish.proxy.http.guard import Guard, is_management
from burnish.proxy.http.headers import by_name

LOCAL = (b"host", b"127.0.0.1:8787")
ALLOWED = [(b"host", host) for host in (b"127.0.0.1:8787", b"localhost", b"[::1]:8787", b"LOCALHOST:1")]
ALLOWED += [(b"origin", b"http://127.0.0.1:8787"), (b"origin", b"http://localhost:3000")]
REBOUND = (b"evil.example", b"127.0.0.1.evil.example", b"localhost.evil.example:80", b"", b"0")
REFUSED = [(b"host", host) for host in REBOUND]
REFUSED += [(b"origin", page) for page in (b"https://evil.example", b"null", b"http://localhost:4000")]
REFUSED += [(b"sec-fetch-site", b"cross-site")]


@pytest.mark.parametrize("header", ALLOWED)
def test_this_machine_and_allowed_pages_may_call(header: tuple[bytes, bytes]) -> None:
    guard = Guard(load_config({"allowed_origins": ["http://localhost:3000"]}))
    guard.check("/v1/chat/completions", by_name([LOCAL, header] if header[0] == b"origin" else [header]))


@pytest.mark.parametrize("header", REFUSED)
def test_a_rebound_name_and_another_web_page_may_not(header: tuple[bytes, bytes]) -> None:
    guard = Guard(load_config({"allowed_origins": ["http://localhost:3000"]}))
    headers = by_name([header] if header[0] == b"host" else [LOCAL, header])
    with pytest.raises(Forbidden, match="Host" if header[0] == b"host" else None):
        guard.check("/v1/feedback", headers)


def test_an_open_address_wants_the_key() -> None:
    guard = Guard(load_config({"host": "0.0.0.0", "api_key": "geheim"}))
    host = (b"host", b"box.lan:8787")
    for keys in ([], [(b"authorization", b"Bearer wrong")]):
        with pytest.raises(Unauthorized):
            guard.check("/v1/models", by_name([host, *keys]))
    guard.check("/v1/models", by_name([host, (b"authorization", b"Bearer geheim")]))
    both = [(b"x-burnish-key", b"geheim"), (b"authorization", b"Bearer upstream-key")]
    guard.check("/v1/models", by_name([host, *both]))


def test_our_key_does_not_go_upstream_and_the_callers_does() -> None:
    guard = Guard(load_config({"api_key": "geheim"}))
    assert guard.without_key([(b"authorization", b"Bearer geheim"), (b"x-goog-api-key", b"geheim")]) == []
    theirs = [(b"authorization", b"Bearer sk-theirs")]
    assert guard.without_key(theirs) == theirs


MANAGEMENT = [
    "/v1/load_lora_adapter", "/load_lora_adapter", "//v1//load_lora_adapter/", "/V1/Load_Lora_Adapter",
    "/api/%63reate", "/api/%2563reate", "/api/blobs/sha256:00", "/lora-adapters",
]  # fmt: skip


@pytest.mark.parametrize("path", MANAGEMENT)
def test_engine_management_is_refused_however_it_is_spelt(path: str) -> None:
    with pytest.raises(BurnishError) as caught:
        Guard(load_config()).check(path, by_name([LOCAL]))
    assert caught.value.status in (400, 403)


@pytest.mark.parametrize("path", ["/v1/../api/pull", "/v1/..%2fapi/pull", "/%252e%252e/x", "/a\\..\\b"])
def test_paths_that_another_hop_could_read_otherwise_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        Guard(load_config()).check(path, by_name([LOCAL]))


ORDINARY = [
    "/api/chat", "/api/generate", "/api/tags", "/api/show", "/api/ps", "/api/version", "/api/embed",
    "/v1beta/models/m:generateContent", "/v1/completions", "/v1/embeddings", "/", "/modelsx",
]  # fmt: skip


@pytest.mark.parametrize("path", ORDINARY)
def test_ordinary_routes_are_not_management(path: str) -> None:
    assert not is_management(path)
