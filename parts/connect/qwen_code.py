"""Qwen Code: a model in ``settings.json``, and a command for ``/rl`` in its terminal interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish.parts.connect.base import BURNISH_KEY, OPENAI_KEY, FileChange, Home, Place
from burnish.parts.connect.changes import OwnFile, SettingsChange
from burnish.parts.connect.formats import Json
from burnish.parts.connect.json_text import END
from burnish.proxy.client_headers import ANY_KEY

# The command sends a message, which burnish answers itself.
NO_KEY = "BURNISH_ANY_KEY"
COMMAND = """\
---
description: Rate the last answer (burnish)
---
/rl {{args}}
"""


def changes(place: Place, home: Home) -> Sequence[FileChange]:
    folder = home.named("QWEN_HOME", ".qwen")
    model: dict[str, Any] = {"id": place.model, "name": "burnish", "baseUrl": place.api}
    # Qwen Code requires a key, in a variable. A placeholder must not be in BURNISH_API_KEY, because a burnish that
    # is started in the same shell would use it.
    variable = BURNISH_KEY if place.key else NO_KEY
    model["envKey"] = OPENAI_KEY if place.own_credentials else variable
    if place.headers:
        model["generationConfig"] = {"customHeaders": place.headers}
    entries: list[tuple[tuple[str | int, ...], Any]] = [
        (("modelProviders", "openai", END), model),
        (("security", "auth", "selectedType"), "openai"),
        (("model", "name"), place.model),
    ]
    if not place.own_credentials:
        entries.append((("env", variable), place.key or ANY_KEY))
    return (
        SettingsChange(folder / "settings.json", Json(), entries),
        OwnFile(folder / "commands" / "rl.md", COMMAND),
    )
