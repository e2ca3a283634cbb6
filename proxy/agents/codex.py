"""Codex: a provider in ``config.toml``. Its terminal interface keeps what begins with a slash, hence the space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from burnish.proxy.agents.base import KEY_HEADER, OPENAI_KEY, Agent, Change, Home, Place
from burnish.proxy.agents.changes import Settings
from burnish.proxy.agents.formats import Toml

PROVIDER = ("model_providers", "burnish")


class Codex(Agent):
    """``codex``."""

    name: ClassVar[str] = "codex"
    title: ClassVar[str] = "Codex"
    rating: ClassVar[str] = "a space, then /rl good"

    def changes(self, place: Place, home: Home) -> Sequence[Change]:
        """Make burnish its provider, over the Responses API, which is all that it speaks."""
        provider: dict[str, Any] = {"name": "burnish", "base_url": place.api, "wire_api": "responses"}
        if place.own_credentials:
            provider["env_key"] = OPENAI_KEY
        if place.key:
            provider["http_headers"] = {KEY_HEADER: place.key}
        entries = [(("model",), place.model), (("model_provider",), "burnish"), (PROVIDER, provider)]
        return (Settings(home.named("CODEX_HOME", ".codex") / "config.toml", Toml(), entries),)
