from __future__ import annotations

import pytest

from burnish.proxy.config import load_config
from burnish.proxy.errors import BurnishError, Forbidden, InvalidRequest, Unauthorized
from burnish.proxy.http.guard import Guard, is_management
from burnish.proxy.http.headers import by_name

LOCAL = (b"host", b"127.0.0.1:8787")


@pytest.mark.parametrize("host", [b"127.0.0.1:8787", b"localhost", b"[::1]:8787", b"LOCALHOST:1"])
def test_loopback_by_its_own_names_may_call(host: bytes) -> None:
    Guard(load_config()).check("/v1/chat/completions", by_name([(b"host", host)]))


@pytest.mark.parametrize(
    "host", [b"evil.example", b"127.0.0.1.evil.example", b"localhost.evil.example:80", b"", b"0"]
)
def test_a_rebound_name_is_refused(host: bytes) -> None:
    with pytest.raises(Forbidden, match="Host"):
        Guard(load_config()).check("/v1/feedback", by_name([(b"host", host)]))


@pytest.mark.parametrize(
    "header",
    [
        (b"origin", b"https://evil.example"),
        (b"origin", b"null"),
        (b"origin", b"http://localhost:3000"),
        (b"sec-fetch-site", b"cross-site"),
    ],
)
def test_another_web_page_is_refused(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(Forbidden):
        Guard(load_config()).check("/v1/feedback", by_name([LOCAL, header]))


def test_our_own_page_and_allowed_pages_may_call() -> None:
    guard = Guard(load_config({"allowed_origins": ["http://localhost:3000"]}))
    guard.check("/v1/feedback", by_name([LOCAL, (b"origin", b"http://127.0.0.1:8787")]))
    guard.check("/v1/feedback", by_name([LOCAL, (b"origin", b"http://localhost:3000")]))


def test_an_open_address_wants_the_key() -> None:
    guard = Guard(load_config({"host": "0.0.0.0", "api_key": "geheim"}))
    host = (b"host", b"box.lan:8787")
    with pytest.raises(Unauthorized):
        guard.check("/v1/models", by_name([host]))
    with pytest.raises(Unauthorized):
        guard.check("/v1/models", by_name([host, (b"authorization", b"Bearer wrong")]))
    guard.check("/v1/models", by_name([host, (b"authorization", b"Bearer geheim")]))
    guard.check(
        "/v1/models",
        by_name([host, (b"x-burnish-key", b"geheim"), (b"authorization", b"Bearer upstream-key")]),
    )


def test_our_key_does_not_go_upstream_and_the_callers_does() -> None:
    guard = Guard(load_config({"api_key": "geheim"}))
    assert guard.without_key([(b"authorization", b"Bearer geheim")]) == []
    assert guard.without_key([(b"x-goog-api-key", b"geheim")]) == []
    theirs = [(b"authorization", b"Bearer sk-theirs")]
    assert guard.without_key(theirs) == theirs


@pytest.mark.parametrize(
    "path",
    [
        "/v1/load_lora_adapter",
        "/load_lora_adapter",
        "//v1//load_lora_adapter/",
        "/V1/Load_Lora_Adapter",
        "/api/%63reate",
        "/api/%2563reate",
        "/api/blobs/sha256:00",
        "/lora-adapters",
    ],
)
def test_engine_management_is_refused_however_it_is_spelt(path: str) -> None:
    with pytest.raises(BurnishError) as caught:
        Guard(load_config()).check(path, by_name([LOCAL]))
    assert caught.value.status in (400, 403)


@pytest.mark.parametrize("path", ["/v1/../api/pull", "/v1/..%2fapi/pull", "/%252e%252e/x", "/a\\..\\b"])
def test_paths_that_another_hop_could_read_otherwise_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        Guard(load_config()).check(path, by_name([LOCAL]))


@pytest.mark.parametrize(
    "path",
    [
        "/api/chat",
        "/api/generate",
        "/api/tags",
        "/api/show",
        "/api/ps",
        "/api/version",
        "/api/embed",
        "/v1beta/models/m:generateContent",
        "/v1/completions",
        "/v1/embeddings",
        "/",
        "/modelsx",
    ],
)
def test_ordinary_routes_are_not_management(path: str) -> None:
    assert not is_management(path)
