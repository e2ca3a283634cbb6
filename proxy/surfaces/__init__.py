"""Wire formats: what clients send and what upstreams answer, one format a file."""

from burnish.proxy.surfaces.base import ChatRequest, Reply, Surface
from burnish.proxy.surfaces.chat import Chat
from burnish.proxy.surfaces.completions import Completions
from burnish.proxy.surfaces.responses import Responses

SURFACES: dict[str, Surface] = {surface.name: surface for surface in (Chat(), Completions(), Responses())}
"""Every format that burnish understands, by name."""

_PATHS: dict[str, Surface] = {
    "/v1/chat/completions": SURFACES["chat"],
    "/v1/completions": SURFACES["completions"],
    "/v1/responses": SURFACES["responses"],
}
"""Where clients post requests."""


def surface_at(path: str) -> Surface | None:
    """Return the format of what is posted to a path; None where it is no completion."""
    return _PATHS.get(path)


__all__ = ["SURFACES", "Chat", "ChatRequest", "Completions", "Reply", "Responses", "Surface", "surface_at"]
