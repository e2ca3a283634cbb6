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
from burnish.proxy.log.capture import FIRST_ERROR_STATUS, Captured
from burnish.proxy.log.intake import tokens
from burnish.proxy.observe.counts import is_streamed
from burnish.proxy.records import Exchange

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
INSTALL = 'pip install "burnish[otel]"'

OPERATIONS: Mapping[str, str] = {
    "completions": "text_completion",
    "ollama_generate": "text_completion",
    "gemini": "generate_content",
}
"""What surfaces are for, as the conventions call it; all others are for chat."""

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
    """Whether the standard OpenTelemetry environment asks for traces."""
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
            "OpenTelemetry: burnish speaks %s only, not %s (port 4318, mostly)", PROTOCOL, protocol
        )
    return "otlp" in exporters if exporters else any(environment.get(name) for name in ENDPOINTS)


class Traces:
    """Makes a span of each completion, and sends them in batches from a thread of its own."""

    def __init__(self, provider: TracerProvider) -> None:
        """Take what exports them; see ``open``."""
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
            logger.warning("traces are wanted, but cannot be exported (%s): %s", error, INSTALL)
            return None
        own = {"service.version": burnish.__version__}
        named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        resource = Resource.create(own if named else own | {"service.name": "burnish"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    def completed(self, captured: Captured) -> None:
        """Make the span of a completion that the log has stored, under the span that its client named."""
        exchange = captured.exchange
        started_ns = int(exchange.started_at * 1e9)
        found = attributes(captured)
        span = self._tracer.start_span(
            f"{_operation(exchange)} {_short(exchange.model_asked) or ''}".rstrip(),
            context=self._parent({"traceparent": exchange.traceparent or ""}),
            kind=self._kind,
            attributes=found,
            start_time=started_ns,
        )
        if "error.type" in found:
            span.set_status(self._error)
        span.end(started_ns + int(exchange.total_s * 1e9))

    def close(self) -> None:
        """Send what is left; takes as long as the exporter's timeout when nobody answers."""
        self._provider.shutdown()


def attributes(captured: Captured) -> dict[str, AttributeValue]:
    """Return what is exported of a completion. Pure."""
    exchange, answer = captured.exchange, captured.answer
    streamed = is_streamed(exchange)
    found: dict[str, AttributeValue | None] = {
        "gen_ai.operation.name": _operation(exchange),
        # Which flavour of the conventions it is, not who answers: that is server.address.
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": _short(exchange.model_asked),
        "gen_ai.response.model": _short(exchange.model_served),
        "gen_ai.response.id": _short(answer.response_id),
        "gen_ai.response.finish_reasons": [reason] if (reason := _short(answer.finish_reason)) else None,
        "gen_ai.usage.input_tokens": tokens(answer.usage, "prompt_tokens"),
        "gen_ai.usage.output_tokens": tokens(answer.usage, "completion_tokens"),
        "gen_ai.request.stream": streamed or None,
        "gen_ai.response.time_to_first_chunk": exchange.first_byte_s if streamed else None,
        "http.response.status_code": exchange.status,
        "error.type": _error_type(captured),
        "burnish.completion_id": exchange.completion_id,
        "burnish.adapter.version": exchange.adapter_version,
        "burnish.outcome": captured.outcome,
    }
    found |= _server(exchange.upstream) | _parameters(captured.settings)
    return {name: value for name, value in found.items() if value is not None}


def _operation(exchange: Exchange) -> str:
    return OPERATIONS.get(exchange.surface, "chat")


def _short(text: str | None) -> str | None:
    """Cut a text to what a span may carry; half a character in it would lose the whole batch."""
    return text[:MAX_TEXT].encode(errors="replace").decode() if text else None


def _error_type(captured: Captured) -> str | None:
    """The upstream's status where it says what was wrong, else how the completion ended; None when it ended well."""
    status = captured.exchange.status
    if status is not None and status >= FIRST_ERROR_STATUS:
        return str(status)
    return None if captured.outcome == "complete" else captured.outcome


def _server(upstream: str) -> dict[str, AttributeValue | None]:
    """Say where it was asked; nothing for replicas, of which the log does not say which one it was."""
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
