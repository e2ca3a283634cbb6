from __future__ import annotations

import pytest

from burnish.proxy.config import load_config
from burnish.proxy.errors import Forbidden, Unauthorized
from burnish.proxy.http.guard import Guard
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
