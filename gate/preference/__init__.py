"""Reward models: they learn from ratings which replies the raters would like."""

from burnish.gate.preference.base import (
    MIN_OF_A_CLASS,
    MIN_RATED,
    CandidateReply,
    Message,
    Order,
    RewardModel,
    last_question,
    order,
    text_of,
)
from burnish.gate.preference.ensemble import Ensemble, ridges
from burnish.gate.preference.preference_model import (
    MOST_RATED,
    PreferenceModel,
    RatedReply,
    believed_preference_model,
    fit_preference_model,
)
from burnish.gate.preference.saved import RewardManifest, read_reward_model, write_reward_model

__all__ = [
    "MIN_OF_A_CLASS",
    "MIN_RATED",
    "MOST_RATED",
    "CandidateReply",
    "Ensemble",
    "Message",
    "Order",
    "PreferenceModel",
    "RatedReply",
    "RewardManifest",
    "RewardModel",
    "believed_preference_model",
    "fit_preference_model",
    "last_question",
    "order",
    "read_reward_model",
    "ridges",
    "text_of",
    "write_reward_model",
]
