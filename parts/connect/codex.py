"""Codex: a provider in ``config.toml``. Its terminal doesn't send text that begins with a slash, hence the space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish.parts import user_files
from burnish.parts.connect.base import OPENAI_KEY, FileChange, Home, Place
from burnish.parts.connect.changes import SettingsChange
from burnish.parts.connect.formats import Json, Toml
from burnish.proxy.client_headers import KEY_HEADER

PROVIDER = ("model_providers", "burnish")


def changes(place: Place, home: Home) -> Sequence[FileChange]:
    """Codex speaks only the Responses API."""
    folder = home.named("CODEX_HOME", ".codex")
    provider: dict[str, Any] = {"name": "burnish", "base_url": place.api, "wire_api": "responses"}
    if place.own_credentials and not home.env.get(OPENAI_KEY) and _has_stored_key(folder):
        provider["requires_openai_auth"] = True
    elif place.own_credentials:
        provider["env_key"] = OPENAI_KEY
    if place.key:
        provider["http_headers"] = {KEY_HEADER: place.key}
    entries = [(("model",), place.model), (("model_provider",), "burnish"), (PROVIDER, provider)]
    return (SettingsChange(folder / "config.toml", Toml(), entries),)


def _has_stored_key(folder: Path) -> bool:
    """Return True if ``codex login --with-api-key`` stored a key. A ChatGPT login works only at OpenAI."""
    try:
        file = user_files.read(folder / "auth.json")
        return bool(file and Json().parse(file[0]).get(OPENAI_KEY))
    except ValueError:
        return False
