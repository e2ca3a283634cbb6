"""Claude Code: ``settings.json`` in ``~/.claude``, and a command with a hook for ``/rl``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish.parts.connect.base import BURNISH_KEY, FileChange, Home, Place
from burnish.parts.connect.changes import OwnFile, SettingsChange
from burnish.parts.connect.formats import Json
from burnish.parts.connect.json_text import END
from burnish.proxy.client_headers import ANY_KEY, KEY_HEADER

MODELS = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{name}_MODEL" for name in ("OPUS", "SONNET", "HAIKU")))
"""The model, and the models for its short names, which sub-agents and titles use."""
OWN_KEY, TOKEN = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"
"""Claude Code needs a login, a key or a token. It sends a key along with a token."""

# Claude Code runs the hook only if this file defines /rl. If the hook doesn't run, the text of the file is sent to the
# model as a message, and burnish finds the command in it.
COMMAND = """\
---
description: Rate the last answer (burnish)
argument-hint: good | bad [why] | 1…5 | fix <the reply you wanted> | undo | status | help
disable-model-invocation: true
---
/rl $ARGUMENTS
"""


def changes(place: Place, home: Home) -> Sequence[FileChange]:
    """A hook answers ``/rl`` without the model; with the mode "prompt" two more offer a choice after an answer."""
    folder = home.named("CLAUDE_CONFIG_DIR", ".claude")
    env = {"ANTHROPIC_BASE_URL": place.url}
    if place.renames:
        env |= dict.fromkeys(MODELS, place.model)
    if not place.own_credentials:
        # A key in the shell is for Anthropic; don't send it to another upstream.
        env |= {TOKEN: place.key or ANY_KEY, OWN_KEY: ""}
    elif place.key:
        env["ANTHROPIC_CUSTOM_HEADERS"] = f"{KEY_HEADER}: {place.key}"
    if place.key:
        env[BURNISH_KEY] = place.key  # for the hook
    command = {"type": "command", "command": place.hook, "timeout": 20}
    hooks: dict[str, dict[str, Any]] = {"UserPromptExpansion": {"matcher": "rl", "hooks": [command]}}
    if place.mode == "prompt":
        hooks |= {"Stop": {"hooks": [command]}, "UserPromptSubmit": {"hooks": [command]}}
    entries = [(("env", name), setting) for name, setting in env.items()]
    return (
        SettingsChange(
            folder / "settings.json",
            Json(),
            [*entries, *((("hooks", event, END), hook) for event, hook in hooks.items())],
        ),
        OwnFile(folder / "commands" / "rl.md", COMMAND),
    )
