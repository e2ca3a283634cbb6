"""What burnish says of its own working: Prometheus metrics and OpenTelemetry traces; nothing in a request's way.

What a completion cost is counted on the log's writer thread, once the completion is stored; how things stand is read
when somebody scrapes. Never in it: what was said, who said it, and series that a client could make.
"""

from burnish.proxy.observe.observing import Observing
from burnish.proxy.observe.routes import metrics_routes
from burnish.proxy.observe.standing import Standing

__all__ = ["Observing", "Standing", "metrics_routes"]
