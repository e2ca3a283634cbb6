"""Agents that burnish can connect, and safe changes of their settings."""

from burnish.proxy.agents import connection
from burnish.proxy.agents.base import Agent, Change, Home, Place, is_own
from burnish.proxy.agents.by_hand import Aider
from burnish.proxy.agents.claude_code import ClaudeCode
from burnish.proxy.agents.cline import Cline
from burnish.proxy.agents.codex import Codex
from burnish.proxy.agents.continue_dev import Continue
from burnish.proxy.agents.llm import Llm
from burnish.proxy.agents.open_webui import OpenWebUI
from burnish.proxy.agents.openclaw import OpenClaw
from burnish.proxy.agents.opencode import OpenCode
from burnish.proxy.agents.qwen_code import QwenCode

_ALL: tuple[type[Agent], ...] = (
    *(ClaudeCode, Codex, OpenCode, OpenClaw, QwenCode, Cline),
    *(Continue, Llm, Aider, OpenWebUI),
)
AGENTS: dict[str, Agent] = {agent.name: agent() for agent in _ALL}
"""All agents by their names on the command line."""

__all__ = ["AGENTS", "Agent", "Change", "Home", "Place", "connection", "is_own"]
