"""Continue (``cn``, and editors): a model in ``config.yaml``, the first of the list, which is the one that it asks."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.parts.connect.base import OPENAI_KEY, FileChange, Home, Place
from burnish.parts.connect.yaml_items import YamlItem, scalar
from burnish.proxy.client_headers import ANY_KEY, KEY_HEADER

ROLES = ("chat", "edit", "apply")
HEAD = "name: Local\nversion: 1.0.0\nschema: v1\n"


def changes(place: Place, home: Home) -> Sequence[FileChange]:
    own = f"${{{{ secrets.{OPENAI_KEY} }}}}"
    key = own if place.own_credentials else scalar(place.key or ANY_KEY)
    # As cn itself writes them, which it does where it finds a key of Anthropic's at its first start.
    lines = [
        "- name: burnish",
        "  provider: openai",
        f"  model: {scalar(place.model)}",
        f"  apiBase: {place.api}",
        f"  apiKey: {key}",
        "  roles:",
        *(f"    - {role}" for role in ROLES),
    ]
    if place.own_credentials and place.key:
        lines += ["  requestOptions:", "    headers:", f"      {KEY_HEADER}: {scalar(place.key)}"]
    path = home.named("CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"
    return (YamlItem(path, lines, key="models", head=HEAD),)
