"""The gate's replies to one prompt, two and two, as people may judge them: kept beside the candidate, not in the log.

Left and right are drawn here, once, so that nobody who judges can tell the versions by their places. Pure.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from burnish.learner.sampling import GatePrompt
from burnish.proxy.ids import duel_id
from burnish.training.job import PolicyReply


@dataclass(frozen=True, slots=True)
class Side:
    version: int
    """0 = the base model."""
    text: str
    finished: bool
    """False: a token limit cut it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two replies to one prompt, in the order in which people see them."""

    id: str
    """As of a Duel."""
    prompt_id: str
    """The completion whose words the prompt quotes; if it is erased, so is the pair."""
    sampled_at: float
    """Seconds since the epoch, UTC."""
    messages: tuple[dict[str, Any], ...]
    params: dict[str, Any]
    left: Side
    right: Side


def kept_pairs(
    prompts: Iterable[GatePrompt], replies: Sequence[PolicyReply], incumbent: int, candidate: int
) -> list[dict[str, Any]]:
    """Return the pairs of replies that a person can judge, as JSON.

    Left out are equal and empty replies, and prompts with tools: a call alone can't be judged by reading.
    """
    by_policy = {(reply.policy, reply.prompt_id): reply for reply in replies}
    pairs = []
    for prompt in prompts:
        new, old = (by_policy.get((policy, prompt.id)) for policy in ("candidate", "incumbent"))
        if prompt.tools or new is None or old is None:
            continue
        if not (new.reply.strip() and old.reply.strip()) or new.reply == old.reply:
            continue
        sides = [Side(candidate, new.reply, new.finished), Side(incumbent, old.reply, old.finished)]
        if secrets.randbits(1):
            sides.reverse()
        pair = Pair(duel_id(), prompt.origin, time.time(), prompt.messages, prompt.params, *sides)
        pairs.append(asdict(pair))
    return pairs


def read_pair(members: Mapping[str, Any]) -> Pair:
    """Raises KeyError, TypeError if it isn't a pair."""
    return Pair(
        **{
            **members,
            "messages": tuple(members["messages"]),
            "left": Side(**members["left"]),
            "right": Side(**members["right"]),
        }
    )
