"""Reward models: what they are, how they score and how they are stored. ``training.rewards`` learns them.

The gate judges by one of them, the preference model. numpy is all that they need.
"""

from burnish.gate.rewards.features import PlainReply
from burnish.gate.rewards.files import RewardManifest, read_reward_model, write_reward_model
from burnish.gate.rewards.model import MIN_OF_A_CLASS, MIN_RATED, Ensemble, Order, RewardModel, order
from burnish.gate.rewards.preference_model import (
    MOST_RATED,
    PreferenceModel,
    RatedReply,
    believed_preference_model,
    fit_preference_model,
    ridges,
)

__all__ = [
    "MIN_OF_A_CLASS",
    "MIN_RATED",
    "MOST_RATED",
    "Ensemble",
    "Order",
    "PlainReply",
    "PreferenceModel",
    "RatedReply",
    "RewardManifest",
    "RewardModel",
    "believed_preference_model",
    "fit_preference_model",
    "order",
    "read_reward_model",
    "ridges",
    "write_reward_model",
]
