"""Whether what answers behind burnish is the user's own, and so knows no model of a vendor and wants no key."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

OWN_SUFFIXES = (".local", ".lan", ".internal", ".home.arpa")


def is_own(upstream: str) -> bool:
    """Whether an upstream, as ``GET /burnish/status`` names it, is on this machine or its network."""
    if upstream.startswith("embedded:"):
        return True
    host = urlsplit(upstream.partition(",")[0]).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith(OWN_SUFFIXES)
