"""Whether burnish is installed as a service, and how it fares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceState:
    installed: bool
    at_login: bool = False
    """Whether it starts at login."""
    running: bool = False
    pid: int | None = None
    since: str = ""
    """When it started, in the words of the service manager."""
    url: str = ""
    """Where it listens, also while it starts again; "" if nowhere."""
    version: str | None = None
    """Version of the burnish that answers; "" if it needs a key to say it, None if none answers or wasn't asked."""
    trouble: str = ""
    """Why it isn't running; "" if it runs, or was stopped."""
