from __future__ import annotations

from pathlib import Path

import pytest

from burnish.config.config import load_config
from burnish.proxy.access.access import Action
from burnish.proxy.access.guard import Guard
from burnish.proxy.http.errors import Forbidden, Unauthorized
from burnish.proxy.http.headers import by_name
from tests.support.inprocess import behind, logged
from tests.support.upstream import completion, reply

LOCAL = (b"host", b"127.0.0.1:8787")
OURS = (b"127.0.0.1:8787", b"localhost", b"[::1]:8787", b"LOCALHOST:1", b"127.1.2.3", b"[0:0:0:0:0:0:0:1]")
ALLOWED = [(b"host", host) for host in OURS]
ALLOWED += [(b"origin", b"http://127.0.0.1:8787"), (b"origin", b"http://localhost:3000")]
ALLOWED += [(b"sec-fetch-site", site) for site in (b"same-origin", b"none")]
REBOUND = (
    b"evil.example", b"127.0.0.1.evil.example", b"localhost.evil.example:80", b"", b"0", b"0.0.0.0", b"[::]", b"127.1",
    b"evil.localhost", b"localhost.", b"2130706433", b"0x7f000001", b"0177.0.0.1", b"169.254.169.254", b"[::1",
    b"127.0.0.1@evil.example", b"evil.example#127.0.0.1", b"evil.example/127.0.0.1", b"localhost, evil.example",
    b"evil.example@127.0.0.1", b"127.0.0.1#evil.example", b"127.0.0.1/evil.example", b"127.0.0.1?evil.example",
    b"evil.example\\@127.0.0.1", b"127.0.0.1 evil.example", b"localhost\0",
    b"\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1",
)  # fmt: skip
REFUSED = [(b"host", host) for host in REBOUND]
PAGES = (
    b"https://evil.example", b"null", b"http://localhost:4000", b"", b"http://127.0.0.1:8787.evil.example", b"file://",
    b"http://localhost:3000.evil.example", b"http://localhost:3000@evil.example", b"http://127.0.0.1:8787, http://evil.example",
    b"chrome-extension://abc", b"//127.0.0.1:8787",
)  # fmt: skip
REFUSED += [(b"origin", page) for page in PAGES]
REFUSED += [(b"sec-fetch-site", site) for site in (b"cross-site", b"same-site")]


@pytest.mark.parametrize("header", ALLOWED)
def test_this_machine_and_allowed_pages_may_call(header: tuple[bytes, bytes]) -> None:
    guard = Guard(load_config({"allowed_origins": ["http://localhost:3000"]}))
    guard.check("/v1/chat/completions", by_name([header] if header[0] == b"host" else [LOCAL, header]))


@pytest.mark.parametrize("header", REFUSED)
def test_a_rebound_name_and_another_web_page_may_not(header: tuple[bytes, bytes]) -> None:
    guard = Guard(load_config({"allowed_origins": ["http://localhost:3000"]}))
    headers = by_name([header] if header[0] == b"host" else [LOCAL, header])
    with pytest.raises(Forbidden, match="Host" if header[0] == b"host" else None):
        guard.check("/v1/feedback", headers)


def test_the_engines_own_page_loads_its_files_and_manages_nothing() -> None:
    guard = Guard(load_config({}))
    guard.knows_engine = True
    files = ("/_app/immutable/bundle.js", "/favicon.svg")
    assert {guard.action_upstream(path, by_page=True) for path in files} == {Action.ASK}
    assert guard.action_upstream("/props", by_page=True) is Action.READ
    for path in ("/slots", "/tools", "/load_lora_adapter.js", "/anything"):
        with pytest.raises(Forbidden):
            guard.action_upstream(path, by_page=True)
    for path in (*files, "/props"):
        with pytest.raises(Forbidden):
            guard.action_upstream(path)


def test_an_open_address_wants_the_key() -> None:
    guard = Guard(load_config({"host": "0.0.0.0", "api_key": "geheim"}))
    host = (b"host", b"box.lan:8787")
    for keys in ([], [(b"authorization", b"Bearer wrong")]):
        with pytest.raises(Unauthorized):
            guard.check("/v1/models", by_name([host, *keys]))
    guard.check("/v1/models", by_name([host, (b"authorization", b"Bearer geheim")]))
    both = [(b"x-burnish-key", b"geheim"), (b"authorization", b"Bearer upstream-key")]
    guard.check("/v1/models", by_name([host, *both]))


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/chat/completions", "/v1/files"])
async def test_a_foreign_page_gets_nothing_through(tmp_path: Path, path: str) -> None:
    simple = {"content-type": "text/plain"}  # a page may send it without asking first
    asking = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    pages = [{"origin": page.decode()} for page in PAGES]
    pages += [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}]
    trusted = {"allowed_origins": ["http://localhost:3000"]}
    async with behind(tmp_path, reply(completion()), **trusted) as (http, server):
        for page in pages:
            for method in ("GET", "POST", "PUT", "DELETE"):
                refused = await http.request(method, path, headers=page | simple, content=b'{"last": true}')
                assert refused.status_code == 403, (method, page)
                assert refused.json()["error"]["code"] == "origin_not_allowed"
                assert refused.headers.get("access-control-allow-origin") == page.get("origin")
            if "origin" in page:
                assert (await http.options(path, headers=page | asking)).status_code == 204
        assert await logged(http) == []
    assert server.requests == []
