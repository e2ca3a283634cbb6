"""OpenClaw: a provider in ``openclaw.json``, and a plugin for reactions in channels.

It sends ``/rl`` commands as messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish.parts import user_files
from burnish.parts.connect.base import OPENAI_KEY, FileChange, Home, Place
from burnish.parts.connect.changes import OwnFile, Scratch, SettingsChange
from burnish.parts.connect.json_text import END
from burnish.parts.connect.merging import Json

PLUGIN = Path(__file__).parent / "openclaw_plugin"
SENT_FILE = "sent.json"
"""The plugin's record of the answers in each message."""


def changes(place: Place, home: Home) -> Sequence[FileChange]:
    settings = _file(home)
    folder = settings.parent / "burnish"
    provider: dict[str, Any] = {"baseUrl": place.api, "api": "openai-completions"}
    provider["apiKey"] = f"${{{OPENAI_KEY}}}" if place.own_credentials else place.token
    if place.headers:
        provider["headers"] = place.headers
    provider["models"] = [{"id": place.model, "name": "burnish"}]
    entries: list[tuple[tuple[str | int, ...], Any]] = [
        (("models", "providers", "burnish"), provider),
        (("agents", "defaults", "model", "primary"), f"burnish/{place.model}"),
    ]
    if place.mode == "command":
        return (SettingsChange(settings, Json(), entries),)
    entries += [
        (("plugins", "load", "paths", END), str(folder)),
        (("plugins", "entries", "burnish"), _plugin(place)),
    ]
    if _allows_only_some(settings):
        entries.append((("plugins", "allow", END), "burnish"))
    plugin = [OwnFile(folder / file.name, file.read_text("utf-8")) for file in sorted(PLUGIN.iterdir())]
    return (SettingsChange(settings, Json(), entries), *plugin, Scratch(folder / SENT_FILE))


def _allows_only_some(settings: Path) -> bool:
    """Return True if only the plugins in a list are loaded."""
    try:
        file = user_files.read(settings)
        return bool(file and Json().parse(file[0]).get("plugins", {}).get("allow"))
    except (ValueError, AttributeError):
        return False  # changing the file will raise the error


def _plugin(place: Place) -> dict[str, Any]:
    config = {"url": place.url, "buttons": place.mode == "prompt"} | ({"key": place.key} if place.key else {})
    # The plugin reads replies and recipients to match answers with messages.
    return {"enabled": True, "hooks": {"allowConversationAccess": True}, "config": config}


def _file(home: Home) -> Path:
    base = Home(home.named("OPENCLAW_HOME", "."), home.env)
    return home.named(
        "OPENCLAW_CONFIG_PATH", str(base.named("OPENCLAW_STATE_DIR", ".openclaw") / "openclaw.json")
    )
