"""Counters since burnish started, of stored completions, feedback and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from burnish.app.observe import measures
from burnish.app.observe.measures import Measure
from burnish.proxy.records import Completion, Feedback, Passthrough

KINDS = {
    "embed": "embeddings", "audio": "audio", "image": "images", "file": "files", "upload": "files", "batch": "batches",
}  # fmt: skip
"""Kinds of passthroughs, by a word in the path; the first match counts."""


class Counts(Collector):
    """The counters and histograms that grow as things happen."""

    def __init__(self) -> None:
        # Otherwise each series has another one with its start time.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._requests = self._counter(measures.REQUESTS)
        self._duration = self._histogram(measures.DURATION)
        self._first_token = self._histogram(measures.FIRST_TOKEN)
        self._tokens = self._counter(measures.TOKENS)
        self._request_bytes = self._counter(measures.REQUEST_BYTES)
        self._response_bytes = self._counter(measures.RESPONSE_BYTES)
        self._passthrough = self._counter(measures.PASSTHROUGH)
        self._passthrough_bytes = self._counter(measures.PASSTHROUGH_BYTES)
        self._passthrough_tokens = self._counter(measures.PASSTHROUGH_TOKENS)
        self._refusals = self._counter(measures.REFUSALS)
        self._ratings = self._counter(measures.RATINGS)
        self._remarks = self._counter(measures.REMARKS)
        self._series: dict[tuple[str, int | None, str], _Series] = {}

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()

    def completed(self, completion: Completion) -> None:
        """Count a completion that the log has stored."""
        ended, wire, surface = completion.ended, completion.wire, completion.asked.surface
        kind = (surface, ended.status and ended.status // 100, ended.outcome)
        series = self._series.get(kind) or self._series_of(kind)
        series.requests.inc()
        series.duration.observe(ended.total_s)
        series.request_bytes.inc(len(wire.request_body))
        series.response_bytes.inc(sum(map(len, wire.chunks)))
        series.input_tokens.inc(ended.prompt_tokens or 0)
        series.output_tokens.inc(ended.completion_tokens or 0)
        if ended.first_byte_s is not None and is_streamed(completion):
            series.first_token.observe(ended.first_byte_s)

    def passthrough(self, record: Passthrough) -> None:
        kind = kind_of(record)
        self._passthrough.labels(kind, _class_of(record.status), record.outcome).inc()
        self._passthrough_bytes.labels(kind, "out").inc(record.request_bytes)
        self._passthrough_bytes.labels(kind, "in").inc(record.response_bytes)
        self._passthrough_tokens.labels(kind, "input").inc(record.prompt_tokens or 0)
        self._passthrough_tokens.labels(kind, "output").inc(record.completion_tokens or 0)

    def rated(self, feedback: Feedback) -> None:
        """Count new feedback; feedback that was undone stays counted."""
        said = feedback.draft
        if feedback.undone_at is not None:
            return
        if said.reward is not None:
            rating = "good" if said.reward > 0 else "bad" if said.reward < 0 else "neutral"
            self._ratings.labels(rating, said.source).inc()
        remarks = {"comment": said.comment, "correction": said.correction, "preference": said.preferred_over}
        for kind, remark in remarks.items():
            if remark is not None:
                self._remarks.labels(kind, said.source).inc()

    def refused(self, status: int) -> None:
        """Count a request that burnish answered with an error of its own."""
        self._refusals.labels(str(status)).inc()

    def _series_of(self, kind: tuple[str, int | None, str]) -> _Series:
        """Look up the series of one kind; once each, because that costs more than counting."""
        surface, hundreds, outcome = kind
        status = _class_of(hundreds and hundreds * 100)
        series = self._series[kind] = _Series(
            requests=self._requests.labels(surface, status, outcome),
            duration=self._duration.labels(surface, outcome),
            first_token=self._first_token.labels(surface),
            input_tokens=self._tokens.labels(surface, "input"),
            output_tokens=self._tokens.labels(surface, "output"),
            request_bytes=self._request_bytes.labels(surface),
            response_bytes=self._response_bytes.labels(surface),
        )
        return series

    def _counter(self, measure: Measure) -> Counter:
        return Counter(measure.name, measure.what, measure.labels, registry=self._registry)

    def _histogram(self, measure: Measure) -> Histogram:
        return Histogram(
            measure.name, measure.what, measure.labels, registry=self._registry, buckets=measure.buckets
        )


@dataclass(frozen=True, slots=True)
class _Series:
    """The series of completions of one kind."""

    requests: Counter
    duration: Histogram
    first_token: Histogram
    input_tokens: Counter
    output_tokens: Counter
    request_bytes: Counter
    response_bytes: Counter


def kind_of(record: Passthrough) -> str:
    if record.status == HTTPStatus.SWITCHING_PROTOCOLS:
        return "websocket"
    return next((kind for word, kind in KINDS.items() if word in record.path), "other")


def _class_of(status: int | None) -> str:
    return f"{status // 100}xx" if status else "none"


def is_streamed(completion: Completion) -> bool:
    """True for a streamed answer, whose first byte tells when its first token came."""
    status = completion.ended.status
    fine = status is not None and status < HTTPStatus.BAD_REQUEST
    return fine and completion.wire.streamed
