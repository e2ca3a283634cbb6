"""Traces against a real receiver of OTLP over HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from burnish.app.observe.traces import traces_wanted
from burnish.system.extras import how_to_install
from tests.support.inprocess import behind
from tests.support.patience import within
from tests.support.upstream import Script, Upstream, completion, events, reply, stream, upstream

PATH = "/v1/chat/completions"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "the launch code is 0000"

Attributes = dict[str, Any]


Traced = Callable[[Script], AbstractAsyncContextManager[tuple[httpx.AsyncClient, Upstream, Upstream]]]


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Traced:
    """burnish before an upstream, and a collector that has all spans once the block has ended."""

    @asynccontextmanager
    async def run(script: Script) -> AsyncIterator[tuple[httpx.AsyncClient, Upstream, Upstream]]:
        async with upstream(reply(b"", headers="content-type: application/x-protobuf\r\n")) as collector:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            async with behind(tmp_path, script) as (client, server):
                yield client, server, collector

    return run


def ask(**more: Any) -> dict[str, Any]:
    return {"model": "mock", "messages": [{"role": "user", "content": SECRET}], **more}


def spans(collector: Upstream) -> list[tuple[Span, Attributes, Attributes]]:
    """What arrived: each span with its attributes and those of its resource."""
    found = []
    for request in collector.requests:
        assert (request.method, request.target) == ("POST", "/v1/traces")
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            for scope in resource.scope_spans:
                assert scope.scope.name == "burnish"
                found += [(span, plain(span), plain(resource.resource)) for span in scope.spans]
    return found


def plain(holder: Any) -> Attributes:
    def value(any_value: Any) -> Any:
        kind = any_value.WhichOneof("value")
        found = getattr(any_value, kind)
        return [value(each) for each in found.values] if kind == "array_value" else found

    return {each.key: value(each.value) for each in holder.attributes}


async def test_a_completion_is_a_span_under_its_clients(traced: Traced) -> None:
    async with traced(reply(completion())) as (client, server, collector):
        unsampled = {"traceparent": TRACEPARENT[:-2] + "00"}  # gives no span
        await client.post(PATH, json=ask(), headers=unsampled)
        body = ask(temperature=0.5, max_tokens=9, seed=7, n=1, stop=["secret stop"], top_p="high")
        answer = await client.post(PATH, json=body, headers={"traceparent": TRACEPARENT, "tracestate": "a=b"})
    ((span, found, resource),) = spans(collector)
    assert span.name == "chat mock"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.kind == Span.SPAN_KIND_CLIENT
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 5e9
    port = int(server.url.rpartition(":")[2])
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "mock",
        "gen_ai.response.model": "mock",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 7,
        "gen_ai.request.choice.count": 1,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": port,
        "burnish.completion_id": answer.headers["x-burnish-completion-id"],
        "burnish.outcome": "complete",
    }
    assert resource["service.name"] == "burnish"
    assert resource["service.version"]
    assert server.requests[-1].header("traceparent") == TRACEPARENT, "goes on as it came"
    assert server.requests[-1].header("tracestate") == "a=b"


async def test_a_streamed_one_says_when_its_first_chunk_came(traced: Traced) -> None:
    script = stream(events("one two three"), pause_s=0.05)
    async with traced(script) as (client, _, collector):
        await client.post(PATH, json=ask(stream=True))
    ((span, found, _),) = spans(collector)
    took_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    assert found["gen_ai.request.stream"] is True
    assert 0 < found["gen_ai.response.time_to_first_chunk"] < took_s
    assert not span.parent_span_id, "nobody named a parent"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (reply(orjson.dumps({"error": {"message": f"bad: {SECRET}"}}), status="429 Slow"), "429"),
        (stream(events("half an", done=False), cut=True), "cut"),
    ],
)
async def test_what_went_wrong_is_a_kind_and_never_a_text(traced: Traced, script: Script, error: str) -> None:
    async with traced(script) as (client, _, collector):
        try:
            names = {"x-burnish-user": "mallory", "x-burnish-session": "s-17"}
            await client.post(PATH, json=ask(), headers=names)
        except httpx.RemoteProtocolError:
            assert error == "cut"
    ((span, found, _),) = spans(collector)
    assert found["error.type"] == error
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert not span.status.message
    sent = b"".join(request.body for request in collector.requests)
    assert not [private for private in (SECRET.encode(), b"mallory", b"s-17", b"half") if private in sent]


async def test_hostile_names_and_numbers_lose_no_other_span(traced: Traced) -> None:
    odd = completion(response_id="x").replace(b'"x"', b'"\\ud800' + b"x" * 1000 + b'"')
    async with traced(reply(odd)) as (client, _, collector):
        await client.post(PATH, json=ask() | {"model": "m" * 100_000, "seed": 2**64 - 1})
        await client.post(PATH, json=ask(), headers={"traceparent": "00-nonsense"})
    first, second = spans(collector)
    assert len(first[0].name) < 300
    assert "gen_ai.request.seed" not in first[1]
    assert second[1]["gen_ai.request.model"] == "mock"


async def test_a_collector_that_is_down_costs_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    async with asyncio.timeout(within(30)), behind(tmp_path, reply(completion())) as (client, _):
        assert (await client.post(PATH, json=ask())).status_code == 200
        assert (await client.get("/burnish/status")).json()["counts"]["completions"] == 1


async def test_without_the_extra_it_says_what_to_install_and_runs_on(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    async with traced(reply(completion())) as (client, _, collector):
        assert (await client.post(PATH, json=ask())).status_code == 200
    assert how_to_install("otel") in caplog.text
    assert collector.requests == []


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "mine"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_environment_switches_it(environment: dict[str, str], wanted: bool) -> None:
    assert traces_wanted(environment) is wanted


def test_what_burnish_does_not_speak_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert not traces_wanted({"OTEL_TRACES_EXPORTER": "zipkin"})
    assert "not zipkin" in caplog.text
    assert traces_wanted({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "not grpc" in caplog.text


def test_off_nothing_of_it_is_imported() -> None:
    code = "import sys, burnish.app.app; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
