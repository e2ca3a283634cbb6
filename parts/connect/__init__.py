"""Agents that burnish can connect, and safe changes of their settings."""

from burnish.parts.connect import (
    aider,
    claude_code,
    cline,
    codex,
    connection,
    continue_dev,
    llm,
    open_webui,
    openclaw,
    opencode,
    qwen_code,
)
from burnish.parts.connect.base import IN_ENVIRONMENT, Agent, FileChange, Home, Place, is_own

AGENTS: dict[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            *("claude-code", "Claude Code", "claude", claude_code.changes),
            sends_tokens=24_000,
            choice="a line with the keys + (good) and - (bad)",
            own_key=f"its login, or {claude_code.OWN_KEY} in its environment",
        ),
        Agent(
            *("codex", "Codex", "codex", codex.changes),
            rating="a space, then /rl good",
            own_key=f"{IN_ENVIRONMENT}, or the key of an earlier codex login --with-api-key",
        ),
        Agent(
            *("opencode", "opencode", "opencode", opencode.changes),
            sends_tokens=10_000,
            own_key=f"{IN_ENVIRONMENT}, or the key of opencode auth login for burnish",
        ),
        Agent(
            *("openclaw", "OpenClaw", "openclaw", openclaw.changes),
            choice="two buttons, 👍 and 👎, in channels that have buttons",
        ),
        Agent("qwen-code", "Qwen Code", "qwen", qwen_code.changes),
        Agent("cline", "Cline", "cline", cline.changes),
        Agent("continue", "Continue", "cn", continue_dev.changes),
        Agent(
            *("llm", "llm", "llm", llm.changes),
            rating="llm -m burnish -c '/rl good'",
            sends_tokens=0,
            own_key=f"the key of llm keys set openai, or {IN_ENVIRONMENT}",
            steps=llm.steps,
        ),
        Agent(
            *("aider", "aider", "aider"),
            rating="a space, then /rl good",
            sends_tokens=4_000,
            own_key="",
            steps=aider.steps,
        ),
        Agent(
            *("open-webui", "Open WebUI", "open-webui", open_webui.changes),
            rating="👍 or 👎 below it, or /rl good",
            sends_tokens=0,
            own_key="",
            steps=open_webui.steps,
            remote=open_webui.remote,
            imports=True,
            key_help=open_webui.KEY_HELP,
        ),
    )
}
"""All agents by their names on the command line."""

__all__ = ["AGENTS", "Agent", "FileChange", "Home", "Place", "connection", "is_own"]
