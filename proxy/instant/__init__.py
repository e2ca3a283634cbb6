"""Critique without weights: what a caller asked for stands in the system prompt until a version has learnt it."""

from burnish.proxy.instant.instant import Addition, Instant
from burnish.proxy.instant.routes import wish_routes

__all__ = ["Addition", "Instant", "wish_routes"]
