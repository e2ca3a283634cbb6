"""Which version waits to be promoted. The history tells it, so it needs no state of its own."""

from __future__ import annotations

from burnish.adapters.manifest import Event
from burnish.adapters.registry import Registry

PASSED_AGAINST = "passed_against"
"""In the details of an event: the version that was live when this one passed the gate."""


def waiting(registry: Registry) -> int | None:
    """Return the latest candidate that passed the gate against the live version; None if there is none.

    If another version goes live, it waits no longer: nobody has compared those two. Once the first one is live again,
    it waits again.
    """
    live, events = registry.live(), registry.events()
    states = {event.version: event.state for event in events}
    passed = {event.version for event in events if event.details.get(PASSED_AGAINST) == live}
    return max((version for version in passed if states[version] == "candidate"), default=None)


def passed(registry: Registry, number: int) -> Event | None:
    """Return the event in which a version passed the gate; None if it didn't."""
    return next((e for e in reversed(registry.events(number)) if PASSED_AGAINST in e.details), None)
