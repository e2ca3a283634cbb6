"""Claude Code: ``settings.json`` in ``~/.claude``, and a command with a hook for ``/rl``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from burnish.proxy.agents.base import BURNISH_KEY, Agent, Change, Home, Place
from burnish.proxy.agents.changes import OwnFile, Settings
from burnish.proxy.agents.formats import Json
from burnish.proxy.agents.json_text import END
from burnish.proxy.client_headers import ANY_KEY, KEY_HEADER

MODELS = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{name}_MODEL" for name in ("OPUS", "SONNET", "HAIKU")))
"""Which model answers, and what its short names mean: sub-agents and titles go by those."""
OWN_KEY, TOKEN = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"
"""Claude Code wants a login, a key or a token before it asks anybody; it sends a key beside a token."""

# Without this file Claude Code knows no /rl, and the hook is never asked. Should it not be asked all the same, what
# the file says goes to the model as a message, and burnish finds the command there.
COMMAND = """\
---
description: Rate the answer before (burnish)
argument-hint: good | bad [why] | 1…5 | fix <the reply you wanted> | undo | status | help
disable-model-invocation: true
---
/rl $ARGUMENTS
"""


class ClaudeCode(Agent):
    """``claude``."""

    name: ClassVar[str] = "claude-code"
    title: ClassVar[str] = "Claude Code"
    rating: ClassVar[str] = "/rl good"
    own_key: ClassVar[str] = f"its login, or {OWN_KEY} where it runs"

    def changes(self, place: Place, home: Home) -> Sequence[Change]:
        """Point it at burnish; a hook answers ``/rl`` without asking the model."""
        folder = home.named("CLAUDE_CONFIG_DIR", ".claude")
        env = {"ANTHROPIC_BASE_URL": place.url}
        if place.renames:
            env |= dict.fromkeys(MODELS, place.model)
        if not place.own_credentials:
            # A key in the shell is Anthropic's, and no business of what answers here.
            env |= {TOKEN: place.key or ANY_KEY, OWN_KEY: ""}
        elif place.key:
            env["ANTHROPIC_CUSTOM_HEADERS"] = f"{KEY_HEADER}: {place.key}"
        if place.key:
            env[BURNISH_KEY] = place.key  # for the hook
        hook = {"matcher": "rl", "hooks": [{"type": "command", "command": place.hook, "timeout": 20}]}
        entries = [(("env", name), value) for name, value in env.items()]
        return (
            Settings(
                folder / "settings.json",
                Json(),
                [*entries, (("hooks", "UserPromptExpansion", END), hook)],
            ),
            OwnFile(folder / "commands" / "rl.md", COMMAND),
        )
