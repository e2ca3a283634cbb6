"""Which format the requests to a path have.

Providers, gateways and base URLs without a version put prefixes of their own before the same endings.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from burnish.proxy.http.errors import BurnishError
from burnish.proxy.surfaces.base import Surface
from burnish.proxy.surfaces.chat import DEPLOYED, Chat, Completions
from burnish.proxy.surfaces.gemini import Gemini
from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.messages import Messages
from burnish.proxy.surfaces.ollama import OllamaChat, OllamaGenerate
from burnish.proxy.surfaces.responses import Responses

_FORMATS = (Chat(), Completions(), Responses(), Messages(), OllamaChat(), OllamaGenerate(), Gemini())
SURFACES: dict[str, Surface] = {surface.name: surface for surface in _FORMATS}
"""Every format that burnish understands, by name."""

SHOW = "/api/show"
COUNT_TOKENS = "/messages/count_tokens"
COMPACT, INPUT_TOKENS = "/responses/compact", "/responses/input_tokens"
_ENDINGS = {
    "/chat/completions": SURFACES["chat"],
    "/completions": SURFACES["completions"],
    "/responses": SURFACES["responses"],
    "/messages": SURFACES["messages"],
    COUNT_TOKENS: SURFACES["messages"],
    COMPACT: SURFACES["responses"],
    INPUT_TOKENS: SURFACES["responses"],
    "/api/chat": SURFACES["ollama_chat"],
    "/api/generate": SURFACES["ollama_generate"],
}
"""Ends of the paths that clients post to; Gemini's paths also hold the model."""
_USUAL = {ending: ending if ending.startswith("/api/") else f"/v1{ending}" for ending in _ENDINGS}
_PATHS = {_USUAL[ending]: surface for ending, surface in _ENDINGS.items()} | {SHOW: SURFACES["ollama_chat"]}
"""The usual paths: of nearly all requests."""
_ENDING = re.compile(rf"(?P<prefix>.*?)(?P<ending>{'|'.join(_ENDINGS)})/?")
_OWN_ENDINGS = ("/chat/completions", "/completions")
"""No other API has them, so any prefix may stand before them."""
_PREFIX = re.compile(r".*/v\d[a-z0-9]*|(?:/[A-Za-z-]+)*")
"""A version, or plain words. Behind an id the other endings mean another API: ``/v1/threads/thread_1/messages``."""
_SLASHES = re.compile("//+")

_NOT_COMPLETIONS = (COUNT_TOKENS, COMPACT, INPUT_TOKENS, ":countTokens", SHOW)
"""Ends of paths that use a format and name a model, but aren't completions."""
_COMPLETIONS = frozenset(path for path in _PATHS if not path.endswith(_NOT_COMPLETIONS))

GOOGLE = re.compile(r"/v1(?:beta|alpha)/(?!openai/)|/ws/google\.")
"""Google's own paths, beside its copy of OpenAI's."""
_FAMILIES = (
    (re.compile(r"/v1/messages/"), SURFACES["messages"]),
    (GOOGLE, SURFACES["gemini"]),
    (re.compile(r"/api/(?!v\d)"), SURFACES["ollama_chat"]),
)
"""Beginnings of other paths of one provider, whose clients expect its errors."""


def surface_at(path: str, query: bytes = b"") -> Surface | None:
    """Return the format of requests to a path; None if it is unknown."""
    if path in _PATHS:
        return _PATHS[path]
    return _under_prefix(path) or Gemini.at(path, query)


def is_usual(path: str) -> bool:
    """Return whether only requests of one format can have a path."""
    return path in _PATHS


def usual_path(path: str) -> str:
    """Return the path of the same requests at a server that has no prefix; Gemini's and unknown ones stay.

    ``path`` may be percent-encoded.
    """
    match = _ending(unquote(path))
    return _USUAL[match["ending"]] if match else path


def is_completion(path: str) -> bool:
    """Return whether requests to a path are completions, which are logged and can be rated."""
    if path in _COMPLETIONS:
        return True
    return surface_at(path) is not None and not path.rstrip("/").endswith(_NOT_COMPLETIONS)


def error_at(path: str, error: BurnishError, *, anthropic: bool = False) -> Json:
    """Return an error in the form that clients of a path expect. ``anthropic``: the client is Anthropic's."""
    surface = surface_at(path) or next((surface for begins, surface in _FAMILIES if begins.match(path)), None)
    if surface is None and anthropic:
        surface = SURFACES["messages"]
    return surface.error(error) if surface else error.envelope()


def _under_prefix(path: str) -> Surface | None:
    match = _ending(path)
    if match is None:
        return None
    surface = _ENDINGS[match["ending"]]
    if isinstance(surface, Chat | Completions) and (deployed := DEPLOYED.fullmatch(path)):
        return type(surface)(deployed["model"])
    return surface


def _ending(path: str) -> re.Match[str] | None:
    match = _ENDING.fullmatch(_SLASHES.sub("/", path))
    if match is None or match["ending"] in _OWN_ENDINGS or _PREFIX.fullmatch(match["prefix"]):
        return match
    return None
