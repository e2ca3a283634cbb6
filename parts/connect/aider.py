"""aider, which the user sets up by hand, with environment variables: it has a settings file in each project."""

from __future__ import annotations

from burnish.parts.connect.base import OPENAI_KEY, Place
from burnish.proxy.client_headers import ANY_KEY, KEY_HEADER


def steps(place: Place) -> str:
    key = "" if place.own_credentials else f"{OPENAI_KEY}={place.key or ANY_KEY} "
    command = f"OPENAI_API_BASE={place.api} {key}aider --model openai/{place.model}"
    if not place.headers:
        return command
    header = f'{{{KEY_HEADER}: "{place.key}"}}'
    return (
        f"{command}\nwith your own {OPENAI_KEY}, and in ~/.aider.model.settings.yml:\n"
        f"- name: openai/{place.model}\n  extra_params:\n    extra_headers: {header}"
    )
