"""Wire formats: what clients send and what upstreams answer, one format a file."""

from burnish.proxy.surfaces.base import ChatRequest, Reply, Surface
from burnish.proxy.surfaces.chat import Chat

SURFACES: dict[str, Surface] = {surface.name: surface for surface in (Chat(),)}
"""Every format that burnish understands, by name."""

_PATHS: dict[str, Surface] = {
    "/v1/chat/completions": SURFACES["chat"],
}
"""Where clients post requests."""


def surface_at(path: str) -> Surface | None:
    """Return the format of what is posted to a path; None where it is no completion."""
    return _PATHS.get(path)


__all__ = ["SURFACES", "Chat", "ChatRequest", "Reply", "Surface", "surface_at"]
