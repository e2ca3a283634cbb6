"""The cost of metrics and traces: µs of the log's writer thread per completion, and µs per scrape.

``python -m bench.observe [--completions 20000]``: a 2 KB request and a streamed answer of 40 chunks, understood once
and then counted and traced again and again; beside it, what parsing it costs. Traces need the extra ``otel``;
an exporter drops them, so the figure doesn't include their encoding.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import orjson
from prometheus_client import CollectorRegistry, generate_latest

from burnish.app.observe.counts import Counts
from burnish.proxy.ids import completion_id
from burnish.proxy.log.capture import parsed
from burnish.proxy.records import Answerer, Completion, CompletionEnd, RequestFacts, Wire

CHUNKS = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=20000)
    completions = parser.parse_args().completions
    made = exchange()
    known = parsed(made)
    counts, registry = Counts(), CollectorRegistry()
    registry.register(counts)
    few = completions // 20
    print(f"parsing a completion         {cost_us(lambda: parsed(made), few):8.2f} µs")
    print(
        f"counting it                  {cost_us(lambda: counts.completed(known.completion), completions):8.2f} µs"
    )
    print(f"rendering the counts         {cost_us(lambda: generate_latest(registry), few):8.2f} µs")
    traces = dropped_traces()
    print(f"making its span              {cost_us(lambda: traces(known), few):8.2f} µs")


def cost_us(call: Callable[[], object], times: int) -> float:
    """Return the least CPU time of a call in five rounds, in µs."""
    rounds = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(times):
            call()
        rounds.append((time.thread_time() - began) / times * 1e6)
    return min(rounds)


def dropped_traces() -> Callable[..., None]:
    """Return what makes spans that go nowhere."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    from burnish.app.observe.traces import Traces

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    return Traces(provider).completed


def exchange() -> Completion:
    """Return a completion as the relay hands it to the log."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mock"}
    deltas = [{"content": "word "}] * CHUNKS
    parts = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    parts.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    parts.append(head | {"choices": [], "usage": {"prompt_tokens": 400, "completion_tokens": CHUNKS}})
    chunks = (*(b"data: " + orjson.dumps(part) + b"\n\n" for part in parts), b"data: [DONE]\n\n")
    messages = [{"role": "user", "content": "x" * 2000}]
    request = orjson.dumps({"model": "mock", "temperature": 0.2, "stream": True, "messages": messages})
    span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    return Completion(
        completion_id(),
        RequestFacts(time.time(), "chat", model_asked="mock", caller="local"),
        Answerer("http://127.0.0.1:9", "mock", adapter_version=1),
        CompletionEnd("complete", total_s=0.4, status=200, first_byte_s=0.05),
        wire=Wire(request, chunks, "text/event-stream", traceparent=span),
    )


if __name__ == "__main__":
    main()
