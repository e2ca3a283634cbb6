"""Wire formats: what clients send and what upstreams answer, one format a file."""

from burnish.proxy.surfaces.base import ChatRequest, Reply, Surface
from burnish.proxy.surfaces.chat import Chat

SURFACES: dict[str, Surface] = {surface.name: surface for surface in (Chat(),)}
"""Every format that burnish understands, by name."""

__all__ = ["SURFACES", "Chat", "ChatRequest", "Reply", "Surface"]
