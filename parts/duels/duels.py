"""Blind comparison of two versions' answers; the choice is stored as a preference."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.registry import version_label
from burnish.gate.replies import last_question
from burnish.parts.core import Core
from burnish.parts.duels.contest import Contest
from burnish.proxy.access.access import Identity
from burnish.proxy.feedback.shapes import feedback_json
from burnish.proxy.feedback.usability import usability
from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.log.duels import PAIR_GONE, SAMPLED_FOR_DUELS, Duel, DuelChoice, SampledReplies, check_open
from burnish.proxy.messages import SYSTEM_ROLES, text_of
from burnish.proxy.records import Answerer, FeedbackDraft
from burnish.proxy.relay.inside import log_answer

NO_VERSION = (
    "There is only the base model so far, so there is nothing to compare. Rate some answers: the first training run "
    "makes a version, and keeps answers of both to your prompts for duels."
)
ALL_JUDGED = (
    "There is no pair left to judge. The next training run brings new ones. Until then, ask both versions something "
    "yourself."
)
STILL_TESTED = "The first version is still being tested. As soon as it has answered, its answers are here."


class Duels:
    """The duels of one log, and of the engine's versions if burnish swaps them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._log = core.log
        self._contest = Contest(core.log, core.engine, core.relay) if core.engine else None
        self._judging = asyncio.Lock()

    @property
    def contest(self) -> Contest:
        """Raises Conflict."""
        if self._contest is None:
            raise Conflict(self._core.why_not, code="not_learning")
        return self._contest

    async def offered(self, limit: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the latest pairs to judge; how many were judged, why there is none, and whether two can be asked."""
        if self._contest is None:
            return [], {"judged": 0, "reason": self._core.why_not, "can_ask": False}
        versions = await asyncio.to_thread(self._contest.leases.versions)
        pairs = []
        for duel in await self._log.open_duels({BASE_VERSION, *versions}, limit):
            with suppress(NotFound):  # erased in this moment
                pairs.append(await self.pair(duel))
        can_ask = await asyncio.to_thread(self._contest.contenders) is not None
        reason = NO_VERSION if not versions else (ALL_JUDGED if can_ask else STILL_TESTED)
        judged = await self._log.judged_duels()
        return pairs, {"judged": judged, "reason": None if pairs else reason, "can_ask": can_ask}

    async def pair(self, duel: Duel) -> dict[str, Any]:
        """Return an open duel as a person sees it. Raises NotFound."""
        replies = duel.sampled or await self._logged(duel)
        messages = replies.messages
        last = max(
            (place for place, message in enumerate(messages) if message.get("role") == "user"), default=0
        )
        earlier = [message for message in messages[:last] if message.get("role") not in SYSTEM_ROLES]
        left, right = (
            {"text": text, "cut": cut} for text, cut in zip(replies.texts, replies.cut, strict=True)
        )
        return {
            "object": "duel",
            "id": duel.id,
            "prompt": last_question(messages),
            "before": [{"role": str(message.get("role")), "text": text_of(message)} for message in earlier],
            "left": left,
            "right": right,
        }

    async def judge(self, duel_id: str, choice: DuelChoice, rater: str, identity: Identity) -> dict[str, Any]:
        """Store a judgement; return the duel with what was which. Raises NotFound, Conflict, Unavailable."""
        versions = await asyncio.to_thread(self.contest.leases.versions)
        async with self._judging:
            duel = await self._log.duel(duel_id)
            check_open(duel)
            if not {duel.left_version, duel.right_version} <= {BASE_VERSION, *versions}:
                raise Conflict(
                    "one of the two versions was rejected or deleted since they answered, so nothing is left to "
                    "compare: judge another pair",
                    code="version_gone",
                )
            if duel.sampled and choice != "equal":
                left, right = self._log_replies(duel, duel.sampled)
                duel = replace(duel, left=left, right=right)
            duel = replace(duel, choice=choice, judged_at=time.time(), rater=rater, sampled=None)
            draft = None if choice == "equal" else _preference(duel, rater, identity)
            duel, preference = await self._log.judge_duel(duel, draft)
        versions_of = {"left": duel.left_version, "right": duel.right_version}
        revealed = {
            "object": "duel",
            "id": duel.id,
            "choice": choice,
            **{
                side: {"version": number, "name": version_label(number)}
                for side, number in versions_of.items()
            },
            "better": versions_of.get(choice),
            "feedback": None,
            "usable": False,
            "reason": "answers that are equally good teach nothing",
        }
        if preference is None or draft is None:
            return revealed
        self._core.on_feedback(preference.feedback)
        better = await self._log.completion(draft.completion_id)
        worse = await self._log.worse(draft.answer, draft.preferred_over or "")
        teaches = usability(draft, better, worse, rules=self._core.rules)
        return revealed | {"feedback": feedback_json(preference.feedback), **teaches._asdict()}

    async def _logged(self, duel: Duel) -> SampledReplies:
        """Return the answers of a duel that are in the log. Raises NotFound."""
        if duel.left is None or duel.right is None:
            raise NotFound(PAIR_GONE, param="id")
        left, right = await self._log.completion(duel.left), await self._log.completion(duel.right)
        texts = [text_of(answer.reply or {}) for answer in (left, right)]
        cut = [answer.ended.finish_reason == "length" for answer in (left, right)]
        return SampledReplies(left.messages, left.params, texts, cut)

    def _log_replies(self, duel: Duel, replies: SampledReplies) -> Sequence[str]:
        """Log replies that the gate sampled as what they are, answers of their versions; return their IDs."""
        names = []
        for version, text, cut in zip(
            (duel.left_version, duel.right_version), replies.texts, replies.cut, strict=True
        ):
            name = self.contest.leases.name(version)
            answerer = Answerer(self._core.upstream.name, name, version, self.contest.base_digest)
            names.append(
                log_answer(
                    self._log,
                    answerer,
                    replies.messages,
                    text,
                    caller=SAMPLED_FOR_DUELS,
                    asked_at=duel.created_at,
                    params=replies.params,
                    cut=cut,
                )
            )
        return names


def _preference(duel: Duel, rater: str, identity: Identity) -> FeedbackDraft:
    better, worse = (duel.left, duel.right) if duel.choice == "left" else (duel.right, duel.left)
    if better is None or worse is None:
        raise NotFound(PAIR_GONE, param="id")
    return FeedbackDraft(
        completion_id=better,
        target="completion_id",
        preferred_over=worse,
        source="duel",
        rater=rater,
        given_with=identity.key,
    )
