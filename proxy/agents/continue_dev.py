"""Continue: a model in ``config.yaml``, the first of the list, which is the one that it asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from burnish.proxy.agents.base import KEY_HEADER, OPENAI_KEY, Agent, Change, Home, Place
from burnish.proxy.agents.yaml_items import YamlItem, quoted

HEAD = "name: Local\nversion: 1.0.0\nschema: v1\n"


class Continue(Agent):
    """``cn``, and the extensions for editors."""

    name: ClassVar[str] = "continue"
    title: ClassVar[str] = "Continue"
    rating: ClassVar[str] = "/rl good"

    def changes(self, place: Place, home: Home) -> Sequence[Change]:
        """Put burnish before its other models."""
        key = f"${{{{ secrets.{OPENAI_KEY} }}}}" if place.own_credentials else place.key or "burnish"
        lines = [
            "- name: burnish",
            "  provider: openai",
            f"  model: {quoted(place.model)}",
            f"  apiBase: {place.api}",
            f"  apiKey: {quoted(key)}",
            "  roles: [chat, edit, apply]",
        ]
        if place.own_credentials and place.key:
            lines += ["  requestOptions:", "    headers:", f"      {KEY_HEADER}: {quoted(place.key)}"]
        path = home.named("CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"
        return (YamlItem(path, lines, key="models", head=HEAD),)
