from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from burnish.app.observe import Observer
from burnish.app.observe.measures import MEASURES
from burnish.app.observe.traces import Traces
from burnish.proxy.log import Log
from burnish.proxy.log.capture import Parsed
from tests.app.observe.scrapes import Scrape, parsed, scrape
from tests.proxy.log.exchanges import capture, locked, user
from tests.support.inprocess import behind
from tests.support.patience import within
from tests.support.upstream import Received, completion, events, reply, stream

PATH = "/v1/chat/completions"
USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":4}}\n\n'


async def as_named(request: Received, writer: asyncio.StreamWriter) -> None:
    whole = events("one two")
    scripts = {
        "ok": reply(completion()),
        "busy": reply(b'{"error":{"message":"slow down"}}', status="429 Too Many Requests"),
        "broken": reply(b"oh dear", status="500 Oh", headers="content-type: text/plain\r\n"),
        "stream": stream([*whole[:-1], USAGE, whole[-1]]),
        "unended": stream(events("half an", done=False)),
        "cut": stream(events("half an", done=False), cut=True),
        "never": stream(whole[:2], hold=asyncio.Event()),
        "hostile": reply(
            orjson.dumps({"id": "x", "choices": [], "usage": {"prompt_tokens": -5, "completion_tokens": "9"}})
        ),
    }
    await scripts.get(request.json()["model"], scripts["ok"])(request, writer)


def ask(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Say hello."}], **more}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with behind(tmp_path, as_named) as (client, _):
        yield client


async def until(client: httpx.AsyncClient, reached: Callable[[Scrape], object]) -> Scrape:
    async with asyncio.timeout(within(30)):
        while not reached(found := parsed((await client.get("/metrics")).text)):
            pass
    return found


ENDINGS = {
    "ok": (False, "2xx", "complete"),
    "hostile": (False, "2xx", "complete"),
    "stream": (True, "2xx", "complete"),
    "busy": (False, "4xx", "complete"),
    "broken": (False, "5xx", "complete"),
    "unended": (True, "2xx", "cut"),
    "cut": (True, "2xx", "cut"),
}
"""Models, with the answer's being a stream, its status, and how it ends."""


async def test_completions_count_by_how_they_ended(client: httpx.AsyncClient) -> None:
    sent = received = 0
    began = time.monotonic()
    for model, (streamed, _, _) in ENDINGS.items():
        body = orjson.dumps(ask(model, stream=streamed))
        sent += len(body)
        with suppress(httpx.RemoteProtocolError):  # of the one that is cut
            async with client.stream("POST", PATH, content=body) as answer:
                async for chunk in answer.aiter_raw():
                    received += len(chunk)
    found = await scrape(client)
    endings = Counter((status, outcome) for _, status, outcome in ENDINGS.values())
    for (status, outcome), count in endings.items():
        named = {"surface": "chat", "status": status, "outcome": outcome}
        assert found.value("burnish_requests_total", **named) == count
    assert found.total("burnish_requests_total") == len(ENDINGS)
    for outcome, count in Counter(outcome for *_, outcome in ENDINGS.values()).items():
        named = {"surface": "chat", "outcome": outcome}
        assert found.value("burnish_request_duration_seconds_count", **named) == count
        assert 0 < found.value("burnish_request_duration_seconds_sum", **named) < time.monotonic() - began
        assert found.value("burnish_request_duration_seconds_bucket", **named, le="+Inf") == count
    streams = sum(streamed for streamed, *_ in ENDINGS.values())
    assert found.value("burnish_time_to_first_token_seconds_count", surface="chat") == streams
    assert found.value("burnish_request_bytes_total", surface="chat") == sent
    assert found.value("burnish_response_bytes_total", surface="chat") == received
    assert found.value("burnish_requests_in_flight") == 0
    # Of "ok" and "stream"; nonsense isn't counted.
    assert found.value("burnish_tokens_total", surface="chat", type="input") == 5 + 30
    assert found.value("burnish_tokens_total", surface="chat", type="output") == 2 + 4


async def test_a_client_that_leaves_counts_as_cancelled(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", PATH, json=ask("never", stream=True)) as answer:
        parts = answer.aiter_raw()  # held, since one that is dropped closes the answer
        await anext(parts)
        flying = await scrape(client)
    done = await until(client, lambda found: found.total("burnish_requests_total"))
    assert done.value("burnish_requests_total", surface="chat", status="2xx", outcome="cancelled") == 1
    assert flying.value("burnish_requests_in_flight") == 1
    assert flying.total("burnish_requests_total") == 0
    assert done.value("burnish_requests_in_flight") == 0


async def test_what_burnish_refuses_counts_by_its_status(tmp_path: Path) -> None:
    async with behind(tmp_path, as_named, upstream="http://127.0.0.1:9") as (client, _):
        for path in ("/a%5Cb", "/%2e%2e/b"):
            assert (await client.get(path)).status_code == 400
        assert (await client.get("/slots")).status_code == 403
        assert (await client.post(PATH, json=ask("ok"))).status_code == 502
        found = await scrape(client)
    for status, count in (("400", 2), ("403", 1), ("502", 1)):
        assert found.value("burnish_refusals_total", status=status) == count
    assert found.value("burnish_requests_total", surface="chat", status="none", outcome="failed") == 1
    assert found.total("burnish_requests_total") == 1


async def test_no_client_can_make_a_series(client: httpx.AsyncClient) -> None:
    await client.post(PATH, json=ask("ok"))
    await client.post("/v1/feedback", json={"last": True, "rating": "good"})
    before = await scrape(client)
    for number in range(20):
        name = f'evil{number}"}} 1\nburnish_fake_total{{a="b'
        headers = {
            "x-burnish-user": f"user-{number}",
            "x-burnish-session": f"session-{number}",
            "x-stainless-retry-count": str(number),
            "content-type": f"application/x-{number}",
        }
        answer = await client.post(PATH, json=ask(name, user=name), headers=headers)
        said = {"completion_id": answer.headers["x-burnish-completion-id"], "rating": "good"}
        rated = await client.post("/v1/feedback", json=said | {"rater": name.replace("\n", " ")})
        assert rated.status_code == 201
        assert (await client.post("/v1/feedback", json=said | {"source": name})).status_code == 422
        assert answer.status_code == 200
    after = await scrape(client)
    assert set(after) == set(before)
    assert after.value("burnish_requests_total", surface="chat", status="2xx", outcome="complete") == 21


async def test_feedback_counts_by_what_it_says_and_who_says_it(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json=ask("ok"))
    target = {"completion_id": answer.headers["x-burnish-completion-id"]}
    given: list[dict[str, Any]] = [
        {"rating": "good"},
        {"rating": "bad", "comment": "too long"},
        {"rating": 3, "scale": "likert", "source": "judge"},
        {"correction": "Hi.", "source": "environment"},
        {"comment": "twice", "idempotency_key": "k"},
        {"comment": "twice", "idempotency_key": "k"},
    ]
    made = [(await client.post("/v1/feedback", json=target | each)).json() for each in given]
    messages = [*ask("ok")["messages"], {"role": "assistant", "content": "Hello!"}]
    typed = {"model": "ok", "messages": [*messages, {"role": "user", "content": "/rl bad dull"}]}
    assert "rated bad" in (await client.post(PATH, json=typed)).text
    await client.delete(f"/v1/feedback/{made[0]['id']}")
    found = await scrape(client)
    assert found.value("burnish_ratings_total", rating="good", source="human") == 1
    assert found.value("burnish_ratings_total", rating="bad", source="human") == 2
    assert found.value("burnish_ratings_total", rating="neutral", source="judge") == 1
    assert found.total("burnish_ratings_total") == 4
    assert found.value("burnish_remarks_total", kind="comment", source="human") == 3
    assert found.value("burnish_remarks_total", kind="correction", source="environment") == 1
    assert found.total("burnish_requests_total") == 1, "what is typed for burnish is no completion"


async def test_while_the_log_cannot_be_written_the_lag_grows_and_the_scrape_answers(tmp_path: Path) -> None:
    async with behind(tmp_path, as_named) as (client, _):
        await client.post(PATH, json=ask("ok"))
        assert (await scrape(client)).value("burnish_log_lag_seconds") == 0
        with locked(tmp_path / "data" / "burnish.db"):
            await client.post(PATH, json=ask("ok"))
            waiting = await until(client, lambda found: found.value("burnish_log_lag_seconds") > 0.2)
        done = await until(client, lambda found: found.total("burnish_requests_total") == 2)
    assert waiting.value("burnish_log_queue_entries") == 1
    assert waiting.total("burnish_requests_total") == 1
    assert done.value("burnish_log_lag_seconds") == 0
    assert done.value("burnish_log_queue_bytes") == 0


PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


async def test_names_follow_conventions_and_docs_and_openmetrics_agree(client: httpx.AsyncClient) -> None:
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
    await client.post(PATH, json=ask("ok"))
    found = await scrape(client)
    text = (await client.get("/metrics")).text
    answer = await client.get("/metrics", headers={"accept": accept})
    assert found.total("burnish_build_info") == 1
    assert found.value("process_resident_memory_bytes") > 1e6
    assert found.value("process_cpu_seconds_total") > 0
    page = await asyncio.to_thread(PAGE.read_text, "utf-8")
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE burnish_"))
    assert set(types) <= {each.name for each in MEASURES}
    for each in MEASURES:
        assert types.get(each.name, each.kind) == each.kind
        assert re.fullmatch(r"burnish_[a-z]+(_[a-z]+)*", each.name)
        assert f"`{each.name}`" in page
        assert list(each.buckets) == sorted(each.buckets)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics_families(answer.text)}
    (sample,) = [each for each in families["burnish_requests"].samples if each.name.endswith("_total")]
    assert sample.value == 1


async def test_it_stands_behind_the_guard_and_hides_the_upstreams(tmp_path: Path) -> None:
    async with behind(tmp_path, as_named, api_key="secret") as (client, server):
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"origin": "https://evil.example"})).status_code == 403
        assert (await client.post("/metrics", headers={"x-burnish-key": "secret"})).status_code == 405
        answer = await client.get("/metrics", headers={"authorization": "Bearer secret"})
        assert parsed(answer.text).value("burnish_refusals_total", status="401") == 1
    assert server.requests == []


class Faulty(Traces):
    def __init__(self) -> None:
        pass

    def completed(self, parsed: Parsed) -> None:
        raise ValueError("odd")


async def test_a_fault_of_traces_stops_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(Log.open(tmp_path / "log.db", Observer(Faulty()).stored)) as log:
        for _ in range(2):
            made = capture(log, [user("Hi?")])
            assert (await log.completion(made)).id == made
    assert caplog.text.count("was not counted") == 2
