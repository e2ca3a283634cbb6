"""Wire formats: what clients send and what upstreams answer, one format a file."""

from typing import Any

from burnish.proxy.errors import BurnishError
from burnish.proxy.surfaces.base import ChatRequest, Reply, Surface
from burnish.proxy.surfaces.catalogue import SHOW
from burnish.proxy.surfaces.chat import Chat
from burnish.proxy.surfaces.completions import Completions
from burnish.proxy.surfaces.gemini import Gemini
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
"""Where clients post requests; Google's paths name the model besides."""

_OLLAMA = "/api/"
"""How all paths of Ollama begin, whose clients take no error but a string: `ollama pull` shows nothing else."""

_ASIDE = ("/v1/messages/count_tokens", ":countTokens", SHOW)
"""How the paths end of what is in a format and names a model, but is no completion."""


def surface_at(path: str, query: bytes = b"") -> Surface | None:
    """Return the format of what is posted to a path; None where burnish knows of none."""
    return _PATHS.get(path) or Gemini.at(path, query)


def is_completion(path: str) -> bool:
    """Whether what is posted to a path asks for an answer of the model, which is logged and can be rated."""
    return surface_at(path) is not None and not path.endswith(_ASIDE)


def error_at(path: str, error: BurnishError) -> dict[str, Any]:
    """Return the body that reports an error in the format of what is posted to a path."""
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
