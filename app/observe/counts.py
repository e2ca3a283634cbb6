"""Counters since burnish started, of stored completions, feedback and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

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


COUNTED = (
    measures.REQUESTS, measures.DURATION, measures.FIRST_TOKEN, measures.TOKENS, measures.REQUEST_BYTES,
    measures.RESPONSE_BYTES, measures.PASSTHROUGH, measures.PASSTHROUGH_BYTES, measures.PASSTHROUGH_TOKENS,
    measures.REFUSALS, measures.RATINGS, measures.REMARKS,
)  # fmt: skip


class _OfCompletions(NamedTuple):
    """Series that each completion of a kind adds to, looked up at once."""

    requests: Counter
    duration: Histogram
    request_bytes: Counter
    response_bytes: Counter
    input_tokens: Counter
    output_tokens: Counter


class Counts(Collector):
    def __init__(self) -> None:
        # Otherwise each series has another one with its start time.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._families = {measure: self._family(measure) for measure in COUNTED}
        self._series: dict[tuple[Measure, tuple[str, ...]], Any] = {}
        self._completions: dict[tuple[str, int | None, str], _OfCompletions] = {}

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()

    def completed(self, completion: Completion) -> None:
        ended, wire, surface = completion.ended, completion.wire, completion.asked.surface
        kind = surface, ended.status, ended.outcome
        if (series := self._completions.get(kind)) is None:
            series = self._completions[kind] = self._of_completions(*kind)
        series.requests.inc()
        series.duration.observe(ended.total_s)
        series.request_bytes.inc(len(wire.request_body))
        series.response_bytes.inc(sum(map(len, wire.chunks)))
        series.input_tokens.inc(ended.prompt_tokens or 0)
        series.output_tokens.inc(ended.completion_tokens or 0)
        if ended.first_byte_s is not None and is_streamed(completion):
            self._of(measures.FIRST_TOKEN, surface).observe(ended.first_byte_s)

    def passthrough(self, record: Passthrough) -> None:
        kind = kind_of(record)
        self._add(1, measures.PASSTHROUGH, kind, _class_of(record.status), record.outcome)
        self._add(record.request_bytes, measures.PASSTHROUGH_BYTES, kind, "out")
        self._add(record.response_bytes, measures.PASSTHROUGH_BYTES, kind, "in")
        self._add(record.prompt_tokens, measures.PASSTHROUGH_TOKENS, kind, "input")
        self._add(record.completion_tokens, measures.PASSTHROUGH_TOKENS, kind, "output")

    def rated(self, feedback: Feedback) -> None:
        """Count new feedback; feedback that was undone stays counted."""
        draft = feedback.draft
        if feedback.undone_at is not None:
            return
        if draft.reward is not None:
            rating = "good" if draft.reward > 0 else "bad" if draft.reward < 0 else "neutral"
            self._add(1, measures.RATINGS, rating, draft.source)
        remarks = {"comment": draft.comment, "correction": draft.correction}
        remarks |= {"preference": draft.preferred_over}
        for kind, remark in remarks.items():
            if remark is not None:
                self._add(1, measures.REMARKS, kind, draft.source)

    def refused(self, status: int) -> None:
        """Count a request that burnish answered with an error of its own."""
        self._add(1, measures.REFUSALS, str(status))

    def _of_completions(self, surface: str, status: int | None, outcome: str) -> _OfCompletions:
        return _OfCompletions(
            self._of(measures.REQUESTS, surface, _class_of(status), outcome),
            self._of(measures.DURATION, surface, outcome),
            self._of(measures.REQUEST_BYTES, surface),
            self._of(measures.RESPONSE_BYTES, surface),
            self._of(measures.TOKENS, surface, "input"),
            self._of(measures.TOKENS, surface, "output"),
        )

    def _add(self, count: int | None, measure: Measure, *labels: str) -> None:
        self._of(measure, *labels).inc(count or 0)

    def _of(self, measure: Measure, *labels: str) -> Any:
        """Return the counter or histogram with these labels; looked up once, because that costs more than counting."""
        key = measure, labels
        if (series := self._series.get(key)) is None:
            series = self._series[key] = self._families[measure].labels(*labels)
        return series

    def _family(self, measure: Measure) -> Counter | Histogram:
        name, what, labels = measure.name, measure.what, measure.labels
        if measure.buckets:
            return Histogram(name, what, labels, registry=self._registry, buckets=measure.buckets)
        return Counter(name, what, labels, registry=self._registry)


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
