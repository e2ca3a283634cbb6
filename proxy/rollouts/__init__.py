"""Rollouts: one attempt of an agent at a task, through the wire, with rewards instead of ratings."""

from burnish.proxy.rollouts.pins import Pins
from burnish.proxy.rollouts.rollouts import Rollouts
from burnish.proxy.rollouts.routes import rollout_routes

__all__ = ["Pins", "Rollouts", "rollout_routes"]
