"""OpenClaw: a provider in ``openclaw.json``. What begins with ``/rl`` goes through it as a message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from burnish.proxy.agents.base import KEY_HEADER, OPENAI_KEY, Agent, Change, Home, Place
from burnish.proxy.agents.changes import Settings
from burnish.proxy.agents.formats import Json


class OpenClaw(Agent):
    """``openclaw``."""

    name: ClassVar[str] = "openclaw"
    title: ClassVar[str] = "OpenClaw"
    rating: ClassVar[str] = "/rl good"

    def changes(self, place: Place, home: Home) -> Sequence[Change]:
        """Make burnish its provider, and the model there its first choice."""
        provider: dict[str, Any] = {"baseUrl": place.api, "api": "openai-completions"}
        provider["apiKey"] = f"${{{OPENAI_KEY}}}" if place.own_credentials else place.key or "burnish"
        if place.own_credentials and place.key:
            provider["headers"] = {KEY_HEADER: place.key}
        provider["models"] = [{"id": place.model, "name": "burnish"}]
        entries = [
            (("models", "providers", "burnish"), provider),
            (("agents", "defaults", "model", "primary"), f"burnish/{place.model}"),
        ]
        return (Settings(_file(home), Json(), entries),)


def _file(home: Home) -> Path:
    base = Home(home.named("OPENCLAW_HOME", "."), home.env)
    return home.named(
        "OPENCLAW_CONFIG_PATH", str(base.named("OPENCLAW_STATE_DIR", ".openclaw") / "openclaw.json")
    )
