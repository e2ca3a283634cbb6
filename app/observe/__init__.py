"""Prometheus metrics and OpenTelemetry traces, outside the path of a request.

Completions are counted on the log's writer thread once they are stored; gauges are read at each scrape. Metrics never
hold messages, callers, or series that a client could create.
"""

from burnish.app.observe.gauges import Gauges
from burnish.app.observe.observer import Observer, metrics_routes

__all__ = ["Gauges", "Observer", "metrics_routes"]
