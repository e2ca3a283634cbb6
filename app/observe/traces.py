"""OpenTelemetry traces: one span a completion, made after the fact and exported over OTLP/HTTP.

Switched on by the standard environment; off, nothing of OpenTelemetry is imported. Attributes follow the GenAI semantic
conventions (client inference spans). Never exported: messages, tool calls, what an upstream said of an error (it may
quote the prompt), and who asked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

import burnish
from burnish.app.observe.counts import is_streamed
from burnish.proxy.log.capture import FIRST_ERROR_STATUS, Parsed
from burnish.proxy.records import CompletionEnd, RequestFacts
from burnish.system.extras import how_to_install

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"

OPERATIONS: Mapping[str, str] = {
    "completions": "text_completion",
    "ollama_generate": "text_completion",
    "gemini": "generate_content",
}
"""Operation names in the conventions; all other surfaces are for chat."""

MAX_TEXT = 256
"""Characters of a name or an id: clients and upstreams choose them freely."""

LARGEST = 2**63
"""Integers in OTLP are signed 64-bit."""

PARAMETERS: Mapping[str, tuple[str, type[int] | type[float]]] = {
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "max_tokens": ("gen_ai.request.max_tokens", int),
    "max_completion_tokens": ("gen_ai.request.max_tokens", int),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
    "seed": ("gen_ai.request.seed", int),
    "n": ("gen_ai.request.choice.count", int),
}
"""What of a request's parameters is exported: numbers, as the conventions name and type them."""


def traces_wanted(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporters = {name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    if unknown := exporters - {"otlp", "none"}:
        logger.warning(
            "OTEL_TRACES_EXPORTER: burnish exports over otlp only, not %s", ", ".join(sorted(unknown))
        )
    protocol = next((environment[name] for name in PROTOCOLS if environment.get(name)), PROTOCOL)
    if protocol != PROTOCOL:
        logger.warning(
            "OpenTelemetry: burnish exports over %s only (port 4318, mostly), not %s", PROTOCOL, protocol
        )
    return "otlp" in exporters if exporters else any(environment.get(name) for name in ENDPOINTS)


class Traces:
    """Makes a span of each completion, and sends them in batches from a thread of its own."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("burnish", burnish.__version__)
        self._parent = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.CLIENT
        self._error = Status(StatusCode.ERROR)

    @classmethod
    def open(cls, environment: Mapping[str, str]) -> Traces | None:
        """Set up what the environment describes; None, with a warning, when the extra is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            logger.warning(
                "traces are wanted, but cannot be exported (%s); to export them, run: %s",
                error,
                how_to_install("otel"),
            )
            return None
        own = {"service.version": burnish.__version__}
        named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        resource = Resource.create(own if named else own | {"service.name": "burnish"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    def completed(self, parsed: Parsed) -> None:
        """Make the span of a completion that the log has stored, under the span that its client named."""
        asked, ended = parsed.completion.asked, parsed.completion.ended
        started_ns = int(asked.created_at * 1e9)
        found = attributes(parsed)
        span = self._tracer.start_span(
            f"{_operation(asked)} {_short(asked.model_asked) or ''}".rstrip(),
            context=self._parent({"traceparent": parsed.completion.wire.traceparent or ""}),
            kind=self._kind,
            attributes=found,
            start_time=started_ns,
        )
        if "error.type" in found:
            span.set_status(self._error)
        span.end(started_ns + int(ended.total_s * 1e9))

    def close(self) -> None:
        """Send what is left; takes up to the exporter's timeout."""
        self._provider.shutdown()


def attributes(parsed: Parsed) -> dict[str, AttributeValue]:
    completion = parsed.completion
    asked, served, ended = completion.asked, completion.served, completion.ended
    streamed = is_streamed(completion)
    found: dict[str, AttributeValue | None] = {
        "gen_ai.operation.name": _operation(asked),
        # Which flavour of the conventions it is, not who answers: that is server.address.
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": _short(asked.model_asked),
        "gen_ai.response.model": _short(served.model_served),
        "gen_ai.response.id": _short(ended.response_id),
        "gen_ai.response.finish_reasons": [reason] if (reason := _short(ended.finish_reason)) else None,
        "gen_ai.usage.input_tokens": ended.prompt_tokens,
        "gen_ai.usage.output_tokens": ended.completion_tokens,
        "gen_ai.request.stream": streamed or None,
        "gen_ai.response.time_to_first_chunk": ended.first_byte_s if streamed else None,
        "http.response.status_code": ended.status,
        "error.type": _error_type(ended),
        "burnish.completion_id": completion.id,
        "burnish.adapter.version": served.adapter_version,
        "burnish.outcome": ended.outcome,
    }
    found |= _server(served.upstream) | _parameters(parsed.settings)
    return {name: value for name, value in found.items() if value is not None}


def _operation(asked: RequestFacts) -> str:
    return OPERATIONS.get(asked.surface, "chat")


def _short(text: str | None) -> str | None:
    """Cut a text to what a span may carry; half a character in it would lose the whole batch."""
    return text[:MAX_TEXT].encode(errors="replace").decode() if text else None


def _error_type(ended: CompletionEnd) -> str | None:
    """The upstream's status where it says what was wrong, else how the completion ended; None when it ended well."""
    status = ended.status
    if status is not None and status >= FIRST_ERROR_STATUS:
        return str(status)
    return None if ended.outcome == "complete" else ended.outcome


def _server(upstream: str) -> dict[str, AttributeValue | None]:
    """Return the upstream's address; nothing for replicas, because the log does not know which one answered."""
    url = urlsplit(upstream)
    if "," in upstream or not url.hostname:
        return {}
    return {"server.address": url.hostname, "server.port": url.port or (443 if url.scheme == "https" else 80)}


def _parameters(settings: bytes | None) -> dict[str, AttributeValue | None]:
    given: dict[str, Any] = orjson.loads(settings) if settings else {}
    found: dict[str, AttributeValue | None] = {}
    for name, (attribute, kind) in PARAMETERS.items():
        value = given.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST:
            found[attribute] = kind(value)
    return found
