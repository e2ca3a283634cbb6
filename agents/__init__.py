"""A client library: agents that play through a running burnish, and learn from their rewards.

docs/agents-that-learn.md is about it. Importing it imports neither ``openai`` nor ``gymnasium``, which the extra
``agents`` installs.
"""

from burnish.agents.connection import Burnish
from burnish.agents.demonstrations import Demonstration
from burnish.agents.episode import Episode, Outcome, Rules
from burnish.agents.errors import (
    AgentError,
    BadDemonstration,
    BadReward,
    EpisodeOver,
    MissingPackage,
    NoAction,
    NotRunning,
    Refused,
    StepLimit,
    TooManyFaults,
)
from burnish.agents.extraction import find_action
from burnish.agents.gym_agent import GymAgent
from burnish.agents.rollouts import Rollouts
from burnish.agents.trackers import Tracker

__all__ = [
    "AgentError",
    "BadDemonstration",
    "BadReward",
    "Burnish",
    "Demonstration",
    "Episode",
    "EpisodeOver",
    "GymAgent",
    "MissingPackage",
    "NoAction",
    "NotRunning",
    "Outcome",
    "Refused",
    "Rollouts",
    "Rules",
    "StepLimit",
    "TooManyFaults",
    "Tracker",
    "find_action",
]
