"""Metrics and traces of one burnish, for as long as it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from weakref import WeakSet

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.app.observe.counts import Counts
from burnish.app.observe.gauges import Gauges
from burnish.app.observe.traces import Traces, traces_wanted
from burnish.proxy.described import described
from burnish.proxy.log.batch import Stored
from burnish.proxy.records import Passthrough
from burnish.proxy.relay.relay import Relay

logger = logging.getLogger(__name__)


class Observer:
    def __init__(self, traces: Traces | None) -> None:
        self.counts = Counts()
        self.traces = traces
        self.relays: WeakSet[Relay] = WeakSet()
        """The relay that takes new requests, and those that still answer old ones."""

    @classmethod
    def open(cls, environment: Mapping[str, str]) -> Observer:
        """The standard OpenTelemetry environment switches traces on."""
        return cls(Traces.open(environment) if traces_wanted(environment) else None)

    def close(self) -> None:
        """Send the last traces; blocks."""
        if self.traces:
            self.traces.close()

    def in_flight(self) -> int:
        """Return how many completions are being answered. On the event loop."""
        return sum(relay.in_flight for relay in self.relays)

    def stored(self, entry: Stored) -> None:
        """Count what the log has stored; on its writer thread, so it must be quick."""
        try:
            _log(entry)
            if isinstance(entry, Passthrough):
                self.counts.passthrough(entry)
                return
            self.counts.completed(entry.completion)
            if self.traces:
                self.traces.completed(entry)
        except Exception:
            # A fault in metrics or traces must not stop the log.
            logger.exception("a stored request was not counted")


def _log(entry: Stored) -> None:
    one = entry if isinstance(entry, Passthrough) else entry.completion.ended
    name = entry.id if isinstance(entry, Passthrough) else entry.completion.id
    logger.debug("%s: %s, status %s, %.0f ms", name, one.outcome, one.status, one.total_s * 1000)


def metrics_routes(counts: Counts, gauges: Gauges) -> Sequence[Route]:
    """Return the route; what the process itself uses (``process_…``) is in it, too."""
    registry = CollectorRegistry()
    registry.register(counts)
    registry.register(gauges)
    ProcessCollector(registry=registry)

    @described("[Prometheus metrics](metrics.md) of burnish", str, media_type="text/plain")
    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        await gauges.refresh()
        # Versions are read from the disk, and none of it may hold up a stream.
        content = await asyncio.to_thread(encode, registry)
        return Response(content, headers={"content-type": content_type})

    return [Route("/metrics", metrics, methods=["GET"])]
