"""Agents that burnish knows how to connect, and how their settings are changed without harm."""

from burnish.proxy.agents import connection
from burnish.proxy.agents.base import Agent, Change, Home, Place
from burnish.proxy.agents.claude_code import ClaudeCode
from burnish.proxy.agents.codex import Codex
from burnish.proxy.agents.opencode import OpenCode
from burnish.proxy.agents.places import is_own

AGENTS: dict[str, Agent] = {agent.name: agent for agent in (ClaudeCode(), Codex(), OpenCode())}
"""By the name that people type."""

__all__ = ["AGENTS", "Agent", "Change", "Home", "Place", "connection", "is_own"]
