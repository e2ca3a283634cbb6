"""Metrics that are read at each scrape: the log's queue, the versions, the results of training.

Runs, verdicts and swaps come from the log and the registry, so these counters go on where they were after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, get_args

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import burnish
from burnish.adapters.errors import AdapterError
from burnish.adapters.manifest import Event, State
from burnish.adapters.registry import Registry
from burnish.app.observe import measures
from burnish.app.observe.measures import Measure
from burnish.gate.verdict import Outcome as Verdict
from burnish.proxy.http.errors import Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.runs import RunTotal

logger = logging.getLogger(__name__)

# A scrape waits ten seconds by default; a busy reader must not cost it all other metrics.
READ_LIMIT_S = 2.0

OUTCOMES = ("live", "candidate", "rejected", "failed", "interrupted")
"""How runs end; shown as 0 before the first one, so that an increase from none is seen as one."""


@dataclass(eq=False, kw_only=True)
class Gauges(Collector):
    log: Log
    in_flight: Callable[[], int]
    learner_status: Callable[[], dict[str, Any]]
    live: Callable[[], int | None]
    """None, as ``registry``, if burnish doesn't swap versions."""
    registry: Registry | None
    _flying: int = field(default=0, init=False)
    _runs: list[RunTotal] | None = field(default=None, init=False)

    async def refresh(self) -> None:
        """Read what belongs to the event loop, and the totals of runs from the log.

        Figures that are unavailable now are left out of the next scrape.
        """
        self._flying, self._runs = self.in_flight(), None
        try:
            async with asyncio.timeout(READ_LIMIT_S):
                self._runs = await self.log.run_totals()
        except (TimeoutError, Unavailable, sqlite3.Error) as error:
            logger.warning("the metrics leave out training runs: %r", error)

    def collect(self) -> Iterator[Metric]:
        """Read everything; blocks on the disk, so it belongs into a thread."""
        yield _metric(measures.BUILD, {burnish.__version__: 1})
        yield _metric(measures.IN_FLIGHT, self._flying)
        backlog = self.log.backlog()
        yield _metric(measures.QUEUE_ENTRIES, backlog.entries)
        yield _metric(measures.QUEUE_BYTES, backlog.size_bytes)
        yield _metric(measures.LAG, backlog.lag_s)
        yield _metric(measures.DROPPED, backlog.dropped)
        yield _metric(measures.TRAINING, int(self.learner_status().get("run") is not None))
        if self._runs is not None:
            none = dict.fromkeys(OUTCOMES, 0.0)
            yield _metric(measures.RUNS, none | {each.outcome: each.runs for each in self._runs})
            yield _metric(measures.RUN_SECONDS, none | {each.outcome: each.seconds for each in self._runs})
        if self.registry is not None:
            try:
                yield from self._versions(self.registry)
            except (AdapterError, OSError) as error:
                # A damaged registry takes its own figures with it, not those that show what else is wrong.
                logger.warning("the metrics leave out versions: %s", error)

    def _versions(self, registry: Registry) -> Iterator[Metric]:
        states = Counter(version.state for version in registry.versions())
        live, events = self.live(), registry.events()
        if live is not None:
            yield _metric(measures.LIVE_VERSION, live)
        yield _metric(measures.VERSIONS, {state: states[state] for state in get_args(State)})
        verdicts = Counter(_verdict(event) for event in events)
        yield _metric(measures.VERDICTS, {verdict: verdicts[verdict] for verdict in get_args(Verdict)})
        swaps = [event for event in events if event.state == "live"]
        yield _metric(measures.SWAPS, len(swaps))
        took = [event.details["seconds"] for event in swaps if "seconds" in event.details]
        yield _histogram(measures.SWAP_DURATION, took)


def _verdict(event: Event) -> str | None:
    verdict = event.details.get("verdict")
    return verdict.get("outcome") if isinstance(verdict, dict) else None


Values = float | Mapping[str, float]
"""The value of a metric, or its values by that of its one label."""


def _metric(measure: Measure, values: Values) -> Metric:
    kind = CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily
    family = kind(measure.name, measure.what, labels=measure.labels)
    by_label = values.items() if isinstance(values, Mapping) else [(None, values)]
    for label, value in by_label:
        family.add_metric([label] if label is not None else [], value)
    return family


def _histogram(measure: Measure, seen: Sequence[float]) -> Metric:
    """Count values in buckets; each bucket counts all that is below its bound."""
    bounds = [*map(str, measure.buckets), "+Inf"]
    places = Counter(bisect_left(measure.buckets, value) for value in seen)
    below = accumulate(places[place] for place in range(len(bounds)))
    family = HistogramMetricFamily(measure.name, measure.what)
    family.add_metric([], list(zip(bounds, below, strict=True)), sum(seen))
    return family
