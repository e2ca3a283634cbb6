"""Wire formats: what clients send and what upstreams answer, one format a file."""

from burnish.proxy.surfaces.base import ChatRequest, Reply, Surface, Translatable
from burnish.proxy.surfaces.chat import Chat, Completions
from burnish.proxy.surfaces.gemini import Gemini
from burnish.proxy.surfaces.messages import Messages
from burnish.proxy.surfaces.ollama import OllamaChat, OllamaGenerate
from burnish.proxy.surfaces.paths import SURFACES, error_at, is_completion, is_usual, surface_at, usual_path
from burnish.proxy.surfaces.responses import Responses

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
    "Translatable",
    "error_at",
    "is_completion",
    "is_usual",
    "surface_at",
    "usual_path",
]
