"""Reward models: learnt from ratings, they score the answers that come after."""

from burnish.proxy.rewards.rewards import Rewards, Scored, Scores
from burnish.proxy.rewards.routes import reward_routes

__all__ = ["Rewards", "Scored", "Scores", "reward_routes"]
