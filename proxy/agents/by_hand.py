"""Agents that the user sets up by hand, with environment variables."""

from __future__ import annotations

from typing import ClassVar

from burnish.proxy.agents.base import OPENAI_KEY, Agent, Place
from burnish.proxy.client_headers import ANY_KEY, KEY_HEADER


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
