"""Feedback on completions: HTTP routes and the ``/rl`` commands."""

from burnish.proxy.feedback.answering import answer_command
from burnish.proxy.feedback.routes import (
    command_route,
    completion_routes,
    feedback_routes,
)
from burnish.proxy.rl.commands import exchanges, find_command
from burnish.proxy.rl.grammar import Command

__all__ = [
    "Command",
    "answer_command",
    "command_route",
    "completion_routes",
    "exchanges",
    "feedback_routes",
    "find_command",
]
