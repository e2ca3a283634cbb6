"""The gate's replies to one prompt, two and two, as duels that people may judge.

Left and right are drawn here, once, so that nobody who judges can tell the versions by their places.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.learner.sampling import GatePrompt, is_ours
from burnish.proxy.ids import duel_id
from burnish.proxy.log import Log
from burnish.proxy.log.duels import Duel, SampledReplies
from burnish.training.job import PolicyReply

logger = logging.getLogger(__name__)


def sampled_duels(
    prompts: Sequence[GatePrompt], replies: Sequence[PolicyReply], candidate: int, incumbent: int
) -> list[Duel]:
    """Return the pairs of replies that a person can judge, those to the first prompt last: the latest is shown first.

    Left out are equal and empty replies, and prompts with tools: a call alone can't be judged by reading.
    """
    by_policy = {(reply.policy, reply.prompt_id): reply for reply in replies}
    duels = []
    for prompt in reversed(prompts):
        new, old = (by_policy.get((policy, prompt.id)) for policy in ("candidate", "incumbent"))
        if prompt.tools or new is None or old is None:
            continue
        if not (new.reply.strip() and old.reply.strip()) or new.reply == old.reply:
            continue
        sides = [(candidate, new), (incumbent, old)]
        if secrets.randbits(1):
            sides.reverse()
        (left_version, left), (right_version, right) = sides
        texts, cut = (left.reply, right.reply), (not left.finished, not right.finished)
        duel = Duel(
            id=duel_id(),
            created_at=time.time(),
            asked_by="",  # the log knows who
            left_version=left_version,
            right_version=right_version,
            quotes=None if is_ours(prompt.origin) else prompt.origin,
            sampled=SampledReplies(prompt.messages, prompt.params, texts, cut),
        )
        duels.append(duel)
    return duels


async def carry_over(root: Path, log: Log) -> None:
    """Move the pairs into the log that burnish used to keep in files beside the versions. Raises Unavailable."""
    for file in await asyncio.to_thread(lambda: sorted(root.glob("v*.pairs.json"))):
        try:
            pairs = json.loads(await asyncio.to_thread(file.read_bytes))
            await log.add_duels(*map(_earlier, pairs))
            await asyncio.to_thread(file.unlink)
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.warning("the pairs in %s can't be offered for duels: %r", file, error)


def _earlier(pair: Mapping[str, Any]) -> Duel:
    """Raises LookupError, TypeError if it isn't a pair."""
    left, right = pair["left"], pair["right"]
    texts, cut = (left["text"], right["text"]), (not left["finished"], not right["finished"])
    return Duel(
        id=pair["id"],
        created_at=pair["sampled_at"],
        asked_by="",
        left_version=left["version"],
        right_version=right["version"],
        quotes=None if is_ours(pair["prompt_id"]) else pair["prompt_id"],
        sampled=SampledReplies(pair["messages"], pair["params"], texts, cut),
    )
