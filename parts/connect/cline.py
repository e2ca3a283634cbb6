"""Cline: its OpenAI-compatible provider, in ``providers.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish.parts.connect.base import FileChange, Home, Place
from burnish.parts.connect.changes import SettingsChange
from burnish.parts.connect.formats import Json
from burnish.proxy.client_headers import ANY_KEY

PROVIDER = "openai-compatible"
VERSION = 1
"""Version of the file format."""
UPDATED_AT = "2026-01-01T00:00:00.000Z"
"""Cline requires a date, and updates it at each use."""


def changes(place: Place, home: Home) -> Sequence[FileChange]:
    folder = home.named("CLINE_DATA_DIR", str(home.named("CLINE_DIR", ".cline") / "data"))
    settings: dict[str, Any] = {"provider": PROVIDER, "model": place.model, "baseUrl": place.api}
    if not place.own_credentials:
        settings["apiKey"] = place.key or ANY_KEY
    elif place.headers:
        settings["headers"] = place.headers
    provider = {"settings": settings, "updatedAt": UPDATED_AT, "tokenSource": "manual"}
    entries: list[tuple[tuple[str, ...], Any]] = [
        (("version",), VERSION),
        (("lastUsedProvider",), PROVIDER),
        (("providers", PROVIDER), provider),
    ]
    return (SettingsChange(folder / "settings" / "providers.json", Json(), entries),)
