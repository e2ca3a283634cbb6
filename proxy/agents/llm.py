"""Simon Willison's ``llm``: a model in ``extra-openai-models.yaml``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from burnish.proxy.agents.base import OPENAI_KEY, Agent, Change, Home, Place
from burnish.proxy.agents.yaml_items import YamlItem, scalar
from burnish.proxy.client_headers import KEY_HEADER

FOLDER = "io.datasette.llm"


class Llm(Agent):
    name: ClassVar[str] = "llm"
    title: ClassVar[str] = "llm"
    program: ClassVar[str] = "llm"
    sends_tokens: ClassVar[int] = 0
    rating: ClassVar[str] = "llm -m burnish -c '/rl good'"
    own_key: ClassVar[str] = f"the key of llm keys set openai, or {OPENAI_KEY} in its environment"

    def changes(self, place: Place, home: Home) -> Sequence[Change]:
        """Add burnish to its models; the default model stays."""
        usual = (
            home.path / "Library" / "Application Support" / FOLDER
            if sys.platform == "darwin"
            else home.config(FOLDER)
        )
        lines = ["- model_id: burnish", f"  model_name: {scalar(place.model)}", f"  api_base: {place.api}"]
        if place.own_credentials:
            lines.append("  api_key_name: openai")
        if place.key:
            lines += ["  headers:", f"    {KEY_HEADER}: {scalar(place.key)}"]
        lines.append("  supports_tools: true")
        return (YamlItem(home.named("LLM_USER_PATH", str(usual)) / "extra-openai-models.yaml", lines),)

    def by_hand(self, place: Place) -> str:
        ask = "Ask with: llm -m burnish '…', or make it the default: llm models default burnish"
        return "\n".join(filter(None, (ask, super().by_hand(place))))
