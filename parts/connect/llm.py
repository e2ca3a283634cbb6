"""Simon Willison's ``llm``: a model in ``extra-openai-models.yaml``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from burnish.parts.connect.base import FileChange, Home, Place
from burnish.parts.connect.yaml_items import YamlItem, scalar
from burnish.proxy.client_headers import KEY_HEADER

FOLDER = "io.datasette.llm"


def changes(place: Place, home: Home) -> Sequence[FileChange]:
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


def steps(place: Place) -> str:
    return "Ask with: llm -m burnish '…', or make it the default: llm models default burnish"
