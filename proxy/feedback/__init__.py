"""Feedback on completions: HTTP routes and the ``/rl`` commands."""

from burnish.proxy.feedback.answering import answer_command
from burnish.proxy.feedback.routes import command_route, completion_routes, feedback_routes

__all__ = ["answer_command", "command_route", "completion_routes", "feedback_routes"]
