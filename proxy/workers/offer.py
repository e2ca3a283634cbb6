"""What a worker is told of the engine whenever that changes."""

from __future__ import annotations

from dataclasses import dataclass

from burnish.adapters.hosts.base import Endpoint


@dataclass(frozen=True, slots=True)
class Offer:
    """Where requests may go."""

    base: tuple[str, str] | None
    """Name and digest of the base model; None: burnish only passes through."""
    live: Endpoint | None = None
    resident: tuple[Endpoint, ...] = ()
    """All versions that may be asked for by name, the live one included."""
    asleep: bool = False
    """Whether a request has to wake the engine first."""
