"""Agents that the user sets up by hand, with environment variables or in their interface."""

from __future__ import annotations

from typing import ClassVar

from burnish.proxy.agents.base import OPENAI_KEY, Agent, Place
from burnish.proxy.client_headers import ANY_KEY, KEY_HEADER

USER_VARIABLES = (
    "ENABLE_FORWARD_USER_INFO_HEADERS=true",
    "FORWARD_USER_INFO_HEADER_USER_ID=x-burnish-user",
    "FORWARD_SESSION_INFO_HEADER_CHAT_ID=x-burnish-session",
)
"""Make Open WebUI send the user and the chat of each request."""


class Aider(Agent):
    """``aider``: it has a settings file in each project."""

    name: ClassVar[str] = "aider"
    title: ClassVar[str] = "aider"
    program: ClassVar[str] = "aider"
    rating: ClassVar[str] = "a space, then /rl good"
    sends_tokens: ClassVar[int] = 4_000

    def by_hand(self, place: Place) -> str:
        key = "" if place.own_credentials else f"{OPENAI_KEY}={place.key or ANY_KEY} "
        command = f"OPENAI_API_BASE={place.api} {key}aider --model openai/{place.model}"
        if not (place.own_credentials and place.key):
            return command
        header = f'{{{KEY_HEADER}: "{place.key}"}}'
        return (
            f"{command}\nwith your own {OPENAI_KEY}, and in ~/.aider.model.settings.yml:\n"
            f"- name: openai/{place.model}\n  extra_params:\n    extra_headers: {header}"
        )


class OpenWebUI(Agent):
    """Open WebUI: its settings are in its database."""

    name: ClassVar[str] = "open-webui"
    title: ClassVar[str] = "Open WebUI"
    program: ClassVar[str] = "open-webui"
    rating: ClassVar[str] = "/rl good"
    sends_tokens: ClassVar[int] = 0

    def by_hand(self, place: Place) -> str:
        key = f"your {OPENAI_KEY}" if place.own_credentials else place.key or ANY_KEY
        both = place.own_credentials and place.key
        header = f'  headers  {{"{KEY_HEADER}": "{place.key}"}}\n' if both else ""
        return (
            "In Open WebUI: Admin Panel → Settings → Connections → OpenAI API → +, with\n"
            f"  URL  {place.api}\n  key  {key}\n{header}"
            f"or, before its first start, in its environment: OPENAI_API_BASE_URL={place.api} {OPENAI_KEY}={key}\n"
            "If several people use it, also set these, to keep their ratings apart:\n"
            f"  {' '.join(USER_VARIABLES)}"
        )
