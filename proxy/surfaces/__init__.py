"""Wire formats: what clients send and what upstreams answer, one format a file."""

from burnish.proxy.surfaces.base import ChatRequest, Reply, Surface
from burnish.proxy.surfaces.chat import Chat
from burnish.proxy.surfaces.gemini import Gemini
from burnish.proxy.surfaces.ollama import OllamaChat, OllamaGenerate

SURFACES: dict[str, Surface] = {
    surface.name: surface for surface in (Chat(), OllamaChat(), OllamaGenerate(), Gemini())
}
"""Every format that burnish understands, by name."""

_PATHS: dict[str, Surface] = {
    "/v1/chat/completions": SURFACES["chat"],
    "/api/chat": SURFACES["ollama_chat"],
    "/api/generate": SURFACES["ollama_generate"],
}
"""Where clients post requests."""


def surface_at(path: str, query: bytes = b"") -> Surface | None:
    """Return the format of what is posted to a path; None where it is no completion."""
    return _PATHS.get(path) or Gemini.at(path, query)


__all__ = [
    "SURFACES",
    "Chat",
    "ChatRequest",
    "Gemini",
    "OllamaChat",
    "OllamaGenerate",
    "Reply",
    "Surface",
    "surface_at",
]
