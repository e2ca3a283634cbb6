"""Duels: a person judges answers of two versions without knowing which is which, and the better one teaches."""

from burnish.proxy.duels.contest import Contest
from burnish.proxy.duels.duels import Duels
from burnish.proxy.duels.routes import duel_routes

__all__ = ["Contest", "Duels", "duel_routes"]
