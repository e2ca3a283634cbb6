"""Agents that burnish can connect, and safe changes of their settings."""

from burnish.parts.connect import connection
from burnish.parts.connect.agents import AGENTS
from burnish.parts.connect.base import Agent, FileChange, Home, Place, is_own

__all__ = ["AGENTS", "Agent", "FileChange", "Home", "Place", "connection", "is_own"]
