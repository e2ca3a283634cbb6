"""Rollouts: one attempt of an agent at a task, through the wire, with rewards instead of ratings."""
