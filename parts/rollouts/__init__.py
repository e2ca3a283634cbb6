"""Rollouts: one attempt of an agent at a task, through the wire, with rewards instead of ratings."""

from burnish.parts.rollouts.rollouts import Rollouts
from burnish.parts.rollouts.routes import rollout_routes
from burnish.parts.rollouts.version_leases import Pins

__all__ = ["Pins", "Rollouts", "rollout_routes"]
