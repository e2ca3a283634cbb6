"""Reward models score replies to a prompt. One is believed once it orders unseen ratings right.

Order: the share of (better, worse) pairs in the right order. It is the area under the ROC curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from burnish.gate.confidence import ONE_SIDED, order_error

Vector = NDArray[np.float64]
Message = Mapping[str, Any]
"""A message in OpenAI's chat format."""

MIN_RATED = 32
"""Ratings from which a reward model may be learnt: with fewer, random ratings are believed too often."""
MIN_OF_A_CLASS = 4
"""Good ratings and bad ones that are needed for that."""
BELIEVED_ABOVE = 0.65
"""Lower bound of the order (chance is .5). At .6, 9 % of random ratings were believed; at .65 it is 1 %."""


@dataclass(frozen=True, slots=True)
class CandidateReply:
    text: str
    finished: bool = True
    """False when a token limit cut it."""


class RewardModel(Protocol):
    """Orders replies to a prompt as the raters would."""

    def score(self, prompt: Sequence[Message], replies: Sequence[CandidateReply]) -> list[float]:
        """Return one score for each reply; a higher one is better. Scores of one prompt can be compared."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """How well unseen ratings are ordered."""

    share: float
    """Of (better, worse) pairs in the right order, in [0, 1]; chance is .5."""
    error: float
    """Its standard error."""

    @property
    def lower(self) -> float:
        return self.share - ONE_SIDED * self.error

    @property
    def upper(self) -> float:
        return min(1.0, self.share + ONE_SIDED * self.error)

    @property
    def believed(self) -> bool:
        return self.lower > BELIEVED_ABOVE


def order(good: ArrayLike, bad: ArrayLike) -> Order:
    """Compare scores of good replies, (n,), with scores of bad ones, (m,); neither may be empty."""
    better, worse = np.asarray(good, dtype=np.float64), np.asarray(bad, dtype=np.float64)
    above = better[:, None] > worse[None, :]
    share = float(np.mean(above + 0.5 * (better[:, None] == worse[None, :])))
    return Order(share, order_error(share, len(better), len(worse)))


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a string or a list of parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def last_question(messages: Sequence[Message]) -> str:
    return text_of(
        next((message.get("content") for message in reversed(messages) if message.get("role") == "user"), "")
    )
