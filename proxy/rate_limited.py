"""A log that clients can't fill: a few records of a kind in a minute, then their number; a thread for tracebacks."""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable
from copy import copy
from urllib.parse import unquote, unquote_plus

FEW = 5
FIRST_SPAN_S, LONGEST_SPAN_S = 60.0, 3600.0
TRACE_CHARACTERS = 4_000
"""Kept of each end of a traceback: its message may hold what a client sent."""
CLOSE_LIMIT_S = 5.0
# Shorter values are no keys, and a traceback without them would be unreadable.
SECRET_CHARACTERS = 6


class RateLimited(logging.Handler):
    """Hands records on to another handler: of warnings and errors ``FEW`` of a kind in a minute.

    At the end it says how many more there were. If a kind goes on, that becomes rarer, down to once an hour. To write a
    traceback takes some 20 ms, so a thread does that.
    """

    def __init__(self, target: logging.Handler, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._target = target
        self._clock = clock
        self._spans: dict[object, _Span] = {}
        self._counting = threading.Lock()
        self._waiting: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def handle(self, record: logging.LogRecord) -> bool:
        """Do without the lock of a handler: the target, which has one, may log a fault of its own while it writes."""
        admitted = bool(self.filter(record))
        if admitted:
            self.emit(record)
        return admitted

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING and not self._admits(record):
            return
        if record.exc_info and record.exc_info[1] and not self._stopping:
            self._hand_over(record)
        else:
            self._target.handle(traced(record))

    def close(self) -> None:
        """Write what waits, and how many records were left out."""
        self._stopping = True
        if self._thread:
            self._waiting.put(None)
            self._thread.join(CLOSE_LIMIT_S)
        self._tell_numbers(self._spans_over(float("inf")))
        self._target.close()
        super().close()

    def _admits(self, record: logging.LogRecord) -> bool:
        kind, moment = _kind(record), self._clock()
        over = []
        with self._counting:
            span = self._spans.get(kind)
            if span is None:
                span = self._spans[kind] = _Span(record, moment)
            elif moment >= span.ends_at:
                over = span.begin_again(moment)
            span.records += 1
            first_left_out = span.records == FEW + 1
            admitted = span.records <= FEW
        self._tell_numbers(over)
        if first_left_out:
            self._hand_over(None)  # the thread must wake up when the span ends
        return admitted

    def _hand_over(self, record: logging.LogRecord | None) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="program log", daemon=True)
            self._thread.start()
        self._waiting.put(record)

    def _write(self) -> None:
        while not (self._stopping and self._waiting.empty()):
            try:
                record = self._waiting.get(timeout=self._until_next_s())
            except queue.Empty:
                self._tell_numbers(self._spans_over(self._clock()))
            else:
                if record:
                    self._target.handle(traced(record))

    def _until_next_s(self) -> float | None:
        with self._counting:
            ends = [span.ends_at for span in self._spans.values() if span.left_out]
        return max(0.0, min(ends) - self._clock()) if ends else None

    def _spans_over(self, moment: float) -> list[logging.LogRecord]:
        with self._counting:
            spans = [span for span in self._spans.values() if span.left_out and moment >= span.ends_at]
            return [record for span in spans for record in span.begin_again(moment)]

    def _tell_numbers(self, records: list[logging.LogRecord]) -> None:
        for record in records:
            self._target.handle(record)


class _Span:
    """A time, and what came in it of one kind."""

    def __init__(self, first: logging.LogRecord, moment: float) -> None:
        # Not the record itself: its exception would keep a request in memory.
        self._place = first.name, first.levelno, first.pathname, first.lineno
        self._message = first.getMessage()[:TRACE_CHARACTERS]
        self._length_s = FIRST_SPAN_S
        self.ends_at = moment + FIRST_SPAN_S
        self.records = 0

    @property
    def left_out(self) -> int:
        return max(0, self.records - FEW)

    def begin_again(self, moment: float) -> list[logging.LogRecord]:
        """Begin the next span; return a record that says how many were left out of this one, if any were."""
        text = f"{self.left_out} more like this one: {self._message}"
        records = [logging.LogRecord(*self._place, text, (), None)] if self.left_out else []
        self._length_s = min(2 * self._length_s, LONGEST_SPAN_S) if records else FIRST_SPAN_S
        self.ends_at, self.records = moment + self._length_s, 0
        return records


def _kind(record: logging.LogRecord) -> object:
    """Return the line of the code that logs, and of the one that raised."""
    error = record.exc_info[1] if record.exc_info else None
    trace = error.__traceback__ if error else None
    while trace and trace.tb_next:
        trace = trace.tb_next
    raised_at = (type(error), trace.tb_frame.f_code, trace.tb_lineno) if trace else None
    return record.name, record.pathname, record.lineno, raised_at


def traced(record: logging.LogRecord) -> logging.LogRecord:
    """Return a copy with its traceback as a text, without the request's query: Google's clients send keys in it."""
    if not (record.exc_info and record.exc_info[1]):
        return record
    text = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    if len(text) > 2 * TRACE_CHARACTERS:
        text = f"{text[:TRACE_CHARACTERS]}\n…\n{text[-TRACE_CHARACTERS:]}"
    record_copy = copy(record)
    record_copy.exc_info, record_copy.exc_text = (
        None,
        _without_query(text, getattr(record, "query", b"").decode("latin-1")),
    )
    record_copy.highlighter = None  # colours would take rich as long again
    return record_copy


def _without_query(text: str, query: str) -> str:
    values = [pair.partition("=")[2] for pair in query.split("&")]
    parts = {query, *(form for secret in values for form in (secret, unquote(secret), unquote_plus(secret)))}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "…") if len(part) >= SECRET_CHARACTERS else text
    return text
