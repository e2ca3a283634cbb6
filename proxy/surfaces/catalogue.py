"""Lists of models in each client format, made from an upstream's OpenAI list.

A model is an entry of OpenAI's ``GET /v1/models``: its ``id`` and other members.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from burnish.config.model_names import LATEST, plain
from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.paths import SHOW

Describe = Callable[[list[Json]], Json | None]
"""Takes all models and returns the answer; None if the requested model isn't among them."""

ANTHROPIC = "anthropic-version"
"""Header that all Anthropic clients send."""
OLLAMA_VERSION = "0.33.0"
"""Ollama version that burnish reports; clients use it to detect features."""
WINDOWS = ("max_model_len", "context_length", "max_context_length", "context_window", "max_input_tokens")
"""Names that upstreams use for the context length in tokens."""
GOOGLE = re.compile(r"/v1(?:beta|alpha)/models(?:/(?P<model>.+))?")
MODEL_PATH = re.compile(r"/v1/models/(?P<model>.+)")


def asked_for(method: str, path: str, model: str | None, *, anthropic: bool) -> Describe | None:
    """Return the function that answers a request for models; None for other requests.

    ``model``: the model in the body. ``anthropic``: the client is Anthropic's.
    """
    if method == "POST":
        return _of_one(model, _shown) if path == SHOW else None
    if method != "GET":
        return None
    if path == "/api/version":
        return lambda _: {"version": OLLAMA_VERSION}
    if path == "/api/tags":
        return lambda models: {"models": list(map(_tag, models))}
    if match := GOOGLE.fullmatch(path):
        if path_model := match["model"]:
            return _of_one(path_model, _googles)
        return lambda models: {"models": list(map(_googles, models))}
    match = MODEL_PATH.fullmatch(path)
    return _of_one(match["model"], _anthropics if anthropic else dict) if match else None


def listed(models: Iterable[Json], *, anthropic: bool) -> Json:
    """Return the answer to ``GET /v1/models``, which OpenAI's and Anthropic's clients share."""
    if not anthropic:
        return {"object": "list", "data": list(models)}
    page_models = [_anthropics(model) for model in models]
    ends = {"first_id": page_models[0]["id"], "last_id": page_models[-1]["id"]} if page_models else {}
    return {"data": page_models, "has_more": False, **ends}


def is_anthropics(page: Json) -> bool:
    """Return whether an upstream's list of models has Anthropic's form."""
    if page.get("object") == "list":
        return False
    return "has_more" in page or any(model.get("type") == "model" for model in page["data"])


def with_models(page: Json, models: Iterable[Json], *, anthropic: bool) -> Json:
    """Return an upstream's page with other models. Its cursors stay, because they name the upstream's own."""
    return {**page, "data": [_anthropics(model) for model in models] if anthropic else list(models)}


def _shown(model: Json) -> Json:
    """Return the answer to ``POST /api/show``. Upstreams don't report tool support, so it is assumed."""
    window = window_of(model)
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _details(),
        "model_info": {"general.architecture": "model"}
        | ({"model.context_length": window} if window else {}),
        "capabilities": ["completion", "tools"],
        "modified_at": _created(model),
    }


def _of_one(name: str | None, described: Callable[[Json], Json]) -> Describe:
    def describe(models: list[Json]) -> Json | None:
        matches = [model for model in models if name is not None and plain(model["id"]) == plain(name)]
        return described(matches[0]) if matches else None

    return describe


def _tag(model: Json) -> Json:
    name = model["id"] if ":" in model["id"].rpartition("/")[2] else model["id"] + LATEST
    return {
        "name": name,
        "model": name,
        "modified_at": _created(model),
        "size": 0,
        # Clients distinguish models by its first twelve characters; here the name does.
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": _details(),
    }


def _details() -> Json:
    """Return empty details: upstreams don't report them."""
    unknown = dict.fromkeys(("parent_model", "format", "family", "parameter_size", "quantization_level"), "")
    return {**unknown, "families": []}


def _googles(model: Json) -> Json:
    window = window_of(model)
    return {
        "name": f"models/{model['id']}",
        "version": "",
        "displayName": model["id"],
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
        **({"inputTokenLimit": window} if window else {}),
    }


def _anthropics(model: Json) -> Json:
    if model.get("type") == "model":
        return model  # it is Anthropic's own
    name = model["id"]
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": _created(model),
        "lifecycle": "active",
    }


def window_of(model: Json) -> int | None:
    """Return the context length that an entry of a list of models names; None if it names none."""
    own = model.get("meta")
    places = [model.get(name) for name in WINDOWS] + [own.get("n_ctx") if isinstance(own, dict) else None]
    return next((size for size in places if isinstance(size, int) and size > 0), None)


def _created(model: Json) -> str:
    """Return the creation time; 1970 if unknown."""
    created = model.get("created")
    seconds = created if isinstance(created, int) and 0 < created < 2**33 else 0
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
