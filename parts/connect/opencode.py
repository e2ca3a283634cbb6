"""opencode: a provider in ``opencode.json``, and a command for ``/rl`` in its terminal interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish.parts.connect.base import OPENAI_KEY, FileChange, Home, Place
from burnish.parts.connect.changes import SettingsChange
from burnish.parts.connect.formats import Json
from burnish.proxy.client_headers import KEY_HEADER

SCHEMA = "https://opencode.ai/config.json"


def changes(place: Place, home: Home) -> Sequence[FileChange]:
    """The command ``/rl`` sends a message, which burnish answers it"""
    options: dict[str, Any] = {"baseURL": place.api}
    if place.key:
        options["headers"] = {KEY_HEADER: place.key}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "burnish",
        "options": options,
        "models": {place.model: {"name": place.model}},
    }
    if place.own_credentials:
        provider["env"] = [OPENAI_KEY]  # or the key of `opencode auth login`
    command = {"template": "/rl $ARGUMENTS", "description": "Rate the last answer (burnish)"}
    model = f"burnish/{place.model}"
    entries = [
        (("$schema",), SCHEMA),  # opencode would add it
        (("provider", "burnish"), provider),
        (("model",), model),
        (("command", "rl"), command),
    ]
    folder = home.config("opencode")
    # If both files exist, opencode prefers the one with comments.
    with_comments = folder / "opencode.jsonc"
    usual = with_comments if with_comments.exists() else folder / "opencode.json"
    return (SettingsChange(home.named("OPENCODE_CONFIG", str(usual)), Json(), entries),)
