"""``GET /metrics``, in Prometheus' text format or, where it is asked for, OpenMetrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.observe.counts import Counts
from burnish.proxy.observe.gauges import Gauges


def metrics_routes(counts: Counts, gauges: Gauges) -> Sequence[Route]:
    """Return the route; what the process itself uses (``process_…``) is in it, too."""
    registry = CollectorRegistry()
    registry.register(counts)
    registry.register(gauges)
    ProcessCollector(registry=registry)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        await gauges.refresh()
        # Versions are read from the disk, and none of it may hold up a stream.
        content = await asyncio.to_thread(encode, registry)
        return Response(content, headers={"content-type": content_type})

    return [Route("/metrics", metrics, methods=["GET"])]
