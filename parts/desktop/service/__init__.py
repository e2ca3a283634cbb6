"""burnish as a service of the user: it starts at login, and again after a crash. One file per service manager."""

from __future__ import annotations

import sys

from burnish.parts.desktop.service.base import Installation, Service, ServiceState

__all__ = ["Installation", "Service", "ServiceState", "this_machines"]


def this_machines() -> Service:
    """Return the service manager of this machine. Raises ServiceUnavailable if none answers."""
    if sys.platform == "darwin":
        from burnish.parts.desktop.service.launchd import Launchd

        return Launchd.found()
    from burnish.parts.desktop.service.systemd import Systemd

    return Systemd.found()
