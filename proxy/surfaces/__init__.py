"""Wire formats: what clients send and what upstreams answer, one format a file."""

from burnish.proxy.errors import BurnishError
from burnish.proxy.surfaces.base import ChatRequest, Reply, Surface
from burnish.proxy.surfaces.catalogue import SHOW
from burnish.proxy.surfaces.chat import Chat, Completions
from burnish.proxy.surfaces.gemini import Gemini
from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.messages import Messages
from burnish.proxy.surfaces.ollama import OllamaChat, OllamaGenerate
from burnish.proxy.surfaces.responses import Responses

_FORMATS = (Chat(), Completions(), Responses(), Messages(), OllamaChat(), OllamaGenerate(), Gemini())
SURFACES: dict[str, Surface] = {surface.name: surface for surface in _FORMATS}
"""Every format that burnish understands, by name."""

_PATHS: dict[str, Surface] = {
    "/v1/chat/completions": SURFACES["chat"],
    "/v1/messages": SURFACES["messages"],
    "/v1/messages/count_tokens": SURFACES["messages"],
    "/v1/completions": SURFACES["completions"],
    "/v1/responses": SURFACES["responses"],
    "/api/chat": SURFACES["ollama_chat"],
    "/api/generate": SURFACES["ollama_generate"],
    SHOW: SURFACES["ollama_chat"],
}
"""Paths that clients post to; Gemini's paths also hold the model."""

_OLLAMA = "/api/"
"""Prefix of Ollama's paths. Its clients only show errors that are strings."""

_NOT_COMPLETIONS = ("/v1/messages/count_tokens", ":countTokens", SHOW)
"""Ends of paths that use a format and name a model, but aren't completions."""


def surface_at(path: str, query: bytes = b"") -> Surface | None:
    """Return the format of requests to a path; None if it is unknown."""
    return _PATHS.get(path) or Gemini.at(path, query)


def is_completion(path: str) -> bool:
    """Return whether requests to a path are completions, which are logged and can be rated."""
    return surface_at(path) is not None and not path.endswith(_NOT_COMPLETIONS)


def error_at(path: str, error: BurnishError) -> Json:
    surface = surface_at(path) or (SURFACES["ollama_chat"] if path.startswith(_OLLAMA) else None)
    return surface.error(error) if surface else error.envelope()


__all__ = [
    "SURFACES",
    "Chat",
    "ChatRequest",
    "Completions",
    "Gemini",
    "Messages",
    "OllamaChat",
    "OllamaGenerate",
    "Reply",
    "Responses",
    "Surface",
    "error_at",
    "is_completion",
    "surface_at",
]
