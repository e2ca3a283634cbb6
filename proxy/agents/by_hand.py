"""Agents that are told by environment variables or in their own interface: what to set there."""

from __future__ import annotations

from typing import ClassVar

from burnish.proxy.agents.base import OPENAI_KEY, Agent, Place


class Aider(Agent):
    """``aider``, which has a file of settings in each project."""

    name: ClassVar[str] = "aider"
    title: ClassVar[str] = "aider"
    rating: ClassVar[str] = "burnish good, in another terminal"

    def by_hand(self, place: Place) -> str:
        """Return how it is started."""
        key = "" if place.own_credentials else f"{OPENAI_KEY}={place.key or 'burnish'} "
        return f"OPENAI_API_BASE={place.api} {key}aider --model openai/{place.model}"


class OpenWebUI(Agent):
    """Open WebUI, whose settings are in its database."""

    name: ClassVar[str] = "open-webui"
    title: ClassVar[str] = "Open WebUI"
    rating: ClassVar[str] = "/rl good"

    def by_hand(self, place: Place) -> str:
        """Return what to set."""
        key = f"your {OPENAI_KEY}" if place.own_credentials else place.key or "burnish"
        return (
            "In Open WebUI: Admin Panel → Settings → Connections → OpenAI API → +, with\n"
            f"  URL  {place.api}\n  key  {key}\n"
            f"or before its first start: OPENAI_API_BASE_URL={place.api} {OPENAI_KEY}={key}"
        )
