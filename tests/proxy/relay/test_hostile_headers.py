"""What an upstream tells a browser to do holds for burnish's address, so it doesn't pass; nor do its redirects."""

from __future__ import annotations

from pathlib import Path

import httpx
import orjson
import pytest

from tests.support.burnish import in_thread, running
from tests.support.chat_wire import whole
from tests.support.inprocess import behind, logged
from tests.support.patience import within
from tests.support.upstream import Script, completion, reply, upstream

ASK = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi."}]}
PROMPT = {"model": "m", "prompt": "Hi."}
COMPLETIONS = {
    "/v1/chat/completions": ASK,
    "/v1/messages": ASK,
    "/v1/completions": PROMPT,
    "/v1/responses": {"model": "m", "input": "Hi."},
    "/api/chat": ASK,
}
ELSEWHERE = (
    "http://evil.example/v1", "//evil.example/x", "https://127.0.0.1/x", "http://127.0.0.1:1/x", "\\\\evil.example",
    "http:\\\\evil.example\\x", "http://127.0.0.1@evil.example/", "  http://evil.example", "http://[::1",
    "javascript:alert(1)",
)  # fmt: skip
ORDERS = {
    "set-cookie": "burnish_8787=mine; Path=/", "clear-site-data": '"*"', "refresh": "0; url=http://evil.example",
    "strict-transport-security": "max-age=31536000", "access-control-allow-origin": "*",
    "access-control-allow-credentials": "true", "access-control-expose-headers": "x-secret",
    "service-worker-allowed": "/",
}  # fmt: skip


def answering(
    status: str, headers: dict[str, str], body: bytes = b"{}", content_type: str = "application/json"
) -> Script:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return reply(body, status=status, headers=f"content-type: {content_type}\r\n{lines}")


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 Other", "307 Temporary", "308 Permanent"])
@pytest.mark.parametrize("location", ["http://evil.example/v1/x", "/v1/elsewhere", ""])
async def test_a_completion_is_never_redirected(tmp_path: Path, status: str, location: str) -> None:
    script = answering(status, {"location": location} if location else {})
    async with behind(tmp_path, script) as (client, server):
        for path, body in COMPLETIONS.items():
            key = {"x-burnish-key": "ours"}
            answer = await client.post(path, json=body, headers=key, follow_redirects=True)
            assert answer.status_code == 502, path
            assert "redirects to" in answer.text and "set it as upstream" in answer.text
            if "evil" in location:
                assert "http://evil.example:80" in answer.text
        assert len(server.requests) == len(COMPLETIONS)
        assert {row["outcome"] for row in await logged(client)} == {"failed"}


@pytest.mark.parametrize("location", ELSEWHERE)
async def test_other_requests_are_not_redirected_to_other_servers(tmp_path: Path, location: str) -> None:
    async with behind(tmp_path, answering("307 Temporary", {"location": location})) as (client, _):
        for method, path in (("GET", "/v1/models/m"), ("POST", "/v1/files"), ("POST", "/v1/embeddings")):
            answer = await client.request(method, path, json=ASK)
            assert (answer.status_code, "location" in answer.headers) == (502, False), path


@pytest.mark.parametrize("location", ["/docs/", "../x", "?page=2", "{url}/docs/"])
async def test_a_redirect_within_the_upstream_passes(tmp_path: Path, location: str) -> None:
    async with behind(tmp_path, answering("307 Temporary", {"location": "-"})) as (client, server):
        target = location.replace("{url}", server.url)
        server.script = answering("307 Temporary", {"location": target})
        answer = await client.get("/docs")
        assert (answer.status_code, answer.headers["location"]) == (307, target)


async def test_orders_to_a_browser_stay_here(tmp_path: Path) -> None:
    said = ORDERS | {"x-request-id": "1", "retry-after": "5"}
    async with behind(tmp_path, answering("200 OK", said, completion())) as (client, _):
        read = [("GET", path) for path in ("/v1/models/m", "/evil.html", "/burnish/engine/x.js")]
        for method, path in (("POST", "/v1/chat/completions"), ("POST", "/v1/files"), *read):
            answer = await client.request(method, path, json=ASK)
            assert answer.status_code == 200, path
            assert answer.headers.keys().isdisjoint(ORDERS), path
            assert (answer.headers["x-request-id"], answer.headers["retry-after"]) == ("1", "5")


DOCUMENTS = ("text/html", "TEXT/HTML; charset=utf-8", "application/xhtml+xml", "image/svg+xml", "text/xml")


@pytest.mark.parametrize("content_type", DOCUMENTS)
@pytest.mark.parametrize("path", ["/evil.html", "/v1/files/f/content", "/v1/chat/completions"])
async def test_a_document_of_the_upstream_runs_in_a_sandbox(tmp_path: Path, content_type: str, path: str):
    body = b"<script>alert(localStorage)</script>"
    async with behind(tmp_path, answering("200 OK", {}, body, content_type)) as (client, _):
        answer = await client.request("POST" if "chat" in path else "GET", path, json=ASK)
        assert answer.content == body
        assert answer.headers["content-security-policy"] == "sandbox allow-scripts allow-forms"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_other_answers_are_as_they_came(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion())) as (client, server):
        answer = await client.post("/v1/chat/completions", json=ASK)
        assert "content-security-policy" not in answer.headers
        server.script = answering("200 OK", {}, b"<p>", "unknown/unknown")
        assert (await client.get("/x")).headers["x-content-type-options"] == "nosniff"


PAGE, EVIL = "https://page.example", "https://evil.example"


async def asked(client: httpx.AsyncClient, origin: str, method: str = "POST") -> httpx.Response:
    return await client.request(method, "/v1/chat/completions", json=ASK, headers={"origin": origin})


async def test_an_allowed_page_reads_answers_and_a_refused_one_which_line_to_add(tmp_path: Path) -> None:
    script = answering("200 OK", {"access-control-allow-origin": EVIL}, completion())
    async with behind(tmp_path, script, allowed_origins=[PAGE]) as (client, server):
        answer = await asked(client, PAGE)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
        assert (answer.headers["vary"], answer.headers["access-control-expose-headers"]) == ("origin", "*")
        assert "access-control-allow-credentials" not in answer.headers
        count = len(server.requests)
        refused = await asked(client, EVIL)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (403, EVIL)
        assert f'allowed_origins = ["{EVIL}"]' in refused.json()["error"]["message"]
        assert len(server.requests) == count
        own = str(client.base_url).rstrip("/")
        assert "access-control-allow-origin" not in (await asked(client, own)).headers


@pytest.mark.parametrize("origin", [PAGE, EVIL, "null"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/feedback", "/burnish/status", "/v1/files"])
async def test_burnish_answers_preflights(tmp_path: Path, origin: str, path: str) -> None:
    """Without its key, which no preflight has. The request itself is refused."""
    flags = {"allowed_origins": [PAGE], "api_key": "k" * 20}
    async with behind(tmp_path, reply(completion()), **flags) as (client, server):
        asks = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,x-burnish-key",
            "access-control-request-private-network": "true",
        }
        answer = await client.options(path, headers=asks)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["access-control-allow-headers"] == "authorization,x-burnish-key"
        assert answer.headers["access-control-allow-private-network"] == "true"
        assert server.requests == []
        sent = {"origin": origin, "authorization": "Bearer " + "k" * 20}
        follows = await client.post(path, json=ASK, headers=sent)
        assert (follows.status_code == 403 and "allowed_origins" in follows.text) == (origin != PAGE)


async def test_an_answer_that_is_translated_carries_no_orders_either(tmp_path: Path) -> None:
    async with behind(tmp_path, answering("404 Not Found", ORDERS)) as (client, server):
        await client.post("/v1/messages", json=ASK)
        server.script = answering("200 OK", ORDERS, orjson.dumps(whole({"content": "Tea."})))
        answer = await client.post("/api/chat", json=ASK | {"stream": False})
        assert answer.headers.keys().isdisjoint(ORDERS)


async def test_the_engines_own_page_has_a_port_of_its_own(tmp_path: Path) -> None:
    """There it may keep things, and reaches nothing of burnish's."""
    async with upstream(answering("200 OK", {}, b"<p>engine</p>", "text/html")) as server:
        program = running(tmp_path / "data", "--upstream", server.url, env={"BURNISH_ENGINE": "none"})
        async with in_thread(program) as up, httpx.AsyncClient(timeout=within(60)) as client:
            sent = await client.get(f"{up.url}/burnish/engine/index.html?a=1")
            assert sent.status_code == 307
            place = httpx.URL(sent.headers["location"])
            where = (place.path, place.query, place.port != httpx.URL(up.url).port)
            assert where == ("/index.html", b"a=1", True)
            page = await client.get(place)
            assert (page.text, "content-security-policy" in page.headers) == ("<p>engine</p>", False)
            boxed = await client.get(f"{up.url}/evil.html")
            assert boxed.headers["content-security-policy"].startswith("sandbox")
            origin = {"origin": f"http://127.0.0.1:{place.port}"}
            for path in ("/burnish/status", "/burnish/completions", "/v1/feedback"):
                assert (await client.get(up.url + path, headers=origin)).status_code == 403
            refused = await client.post(place.copy_with(path="/load_lora_adapter"), json={})
            assert refused.status_code == 403
            chat = place.copy_with(path="/v1/chat/completions", query=None)
            ask = await client.post(chat, json=ASK, headers=origin)
            assert ask.status_code == 200
