"""What looks on for as long as burnish runs, whichever engine it finds meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from weakref import WeakSet

from burnish.proxy.log.batch import Stored
from burnish.proxy.observe.counts import Counts
from burnish.proxy.observe.traces import Traces, traces_wanted
from burnish.proxy.records import Passthrough
from burnish.proxy.relay.relay import Relay

logger = logging.getLogger(__name__)


class Observing:
    """The counts and, where they are wanted, the traces."""

    def __init__(self, traces: Traces | None) -> None:
        self.counts = Counts()
        self.traces = traces
        self.relays: WeakSet[Relay] = WeakSet()
        """The one that takes new requests, and those that still answer old ones."""
        self.elsewhere: Callable[[], int] = int
        """How many completions other processes of ours are answering."""

    @classmethod
    def open(cls, environment: Mapping[str, str]) -> Observing:
        """Begin; whether there are traces, the standard OpenTelemetry environment says."""
        return cls(Traces.open(environment) if traces_wanted(environment) else None)

    def close(self) -> None:
        """Send the last traces; blocks."""
        if self.traces:
            self.traces.close()

    def in_flight(self) -> int:
        """Return how many completions are being answered. On the event loop."""
        return sum(relay.in_flight for relay in self.relays) + self.elsewhere()

    def stored(self, entry: Stored) -> None:
        """Count what the log has stored; on its writer thread, so it must be quick."""
        try:
            if isinstance(entry, Passthrough):
                self.counts.passthrough(entry)
                return
            self.counts.completed(entry.completion)
            if self.traces:
                self.traces.completed(entry)
        except Exception:
            # A fault in metrics or traces must not stop the log.
            logger.exception("a stored request was not counted")
