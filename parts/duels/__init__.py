"""Duels: a person judges answers of two versions without knowing which is which, and the better one teaches."""

from burnish.parts.duels.contest import Contest
from burnish.parts.duels.duels import Duels
from burnish.parts.duels.routes import duel_routes

__all__ = ["Contest", "Duels", "duel_routes"]
