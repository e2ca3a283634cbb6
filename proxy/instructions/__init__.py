"""Adds what a caller asked for to the system prompt until a version has learnt it."""

from burnish.proxy.instructions.instructions import AddInstructions, Addition, Instructions
from burnish.proxy.instructions.routes import instruction_routes

__all__ = ["AddInstructions", "Addition", "Instructions", "instruction_routes"]
