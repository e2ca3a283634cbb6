"""Blind comparison of two versions' answers; the choice is stored as a preference."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson

from burnish.adapters import examples
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.gate.replies import last_question
from burnish.learner.pairs import Pair, Side, read_pair
from burnish.learner.sampling import is_ours
from burnish.parts.duels.contest import Contest
from burnish.proxy.access.access import Identity
from burnish.proxy.feedback.usability import usability
from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.ids import completion_id
from burnish.proxy.log import Log
from burnish.proxy.log.duels import SAMPLED_FOR_DUELS, Duel, DuelChoice, check_open
from burnish.proxy.log.faults import Rules
from burnish.proxy.messages import SYSTEM_ROLES, text_of
from burnish.proxy.records import (
    Answerer,
    Completion,
    CompletionEnd,
    Feedback,
    FeedbackDraft,
    RequestFacts,
    Usability,
    Wire,
)

PAIR_GONE = "this pair is gone: what it quotes was erased, or learning started over. Judge another one"
NO_VERSION = (
    "There is only the base model so far, so there is nothing to compare. Rate some answers: the first training run "
    "makes a version, and keeps answers of both to your prompts for duels."
)
ALL_JUDGED = (
    "There is no pair left to judge. The next training run brings new ones. Until then, ask both versions something "
    "yourself."
)


STILL_TESTED = "The first version is still being tested. As soon as it has answered, its answers are here."


class DuelView(NamedTuple):
    """A pair as the person sees it, without anything that tells the versions."""

    id: str
    messages: Sequence[dict[str, Any]]
    texts: tuple[str, str]
    """Left and right."""
    cut: tuple[bool, bool]
    """Whether a token limit ended them."""

    def to_json(self) -> dict[str, Any]:
        last = max(
            (place for place, message in enumerate(self.messages) if message.get("role") == "user"), default=0
        )
        earlier = [message for message in self.messages[:last] if message.get("role") not in SYSTEM_ROLES]
        left_side, right_side = (
            {"text": text, "cut": cut} for text, cut in zip(self.texts, self.cut, strict=True)
        )
        return {
            "object": "duel",
            "id": self.id,
            "prompt": last_question(self.messages),
            "before": [{"role": str(message.get("role")), "text": text_of(message)} for message in earlier],
            "left": left_side,
            "right": right_side,
        }


class DuelOffer(NamedTuple):
    """What there is to judge."""

    pairs: list[DuelView]
    judged_count: int
    """How many pairs were judged so far."""
    reason: str | None
    """Why there is no pair, and what to do."""
    can_ask: bool
    """Whether there are two versions to ask."""


class DuelVerdict(NamedTuple):
    """What a judgement did."""

    duel: Duel
    feedback: Feedback | None
    """None: the answers were found equal."""
    usability: Usability | None


class Duels:
    """The duels of one log, and of the engine's versions if burnish swaps them."""

    def __init__(
        self,
        log: Log,
        contest: Contest | None,
        why_not: str,
        rules: Rules,
        on_feedback: Callable[[Feedback], None],
    ) -> None:
        """``contest``: None if burnish doesn't learn, for the reason ``why_not``."""
        self._log = log
        self._contest = contest
        self._why_not = why_not
        self._rules = rules
        self._on_feedback = on_feedback
        self._judging = asyncio.Lock()

    @property
    def contest(self) -> Contest:
        """Raises Conflict."""
        if self._contest is None:
            raise Conflict(self._why_not, code="not_learning")
        return self._contest

    async def offered(self, limit: int) -> DuelOffer:
        if self._contest is None:
            return DuelOffer([], 0, self._why_not, can_ask=False)
        judged_ids, versions = await self._log.judged_duels(), await asyncio.to_thread(self._contest.versions)
        open_duels = await self._log.open_duels(limit)
        views = []
        for duel in open_duels:
            with suppress(NotFound):  # erased in this moment
                views += [await self._asked(duel)] if _fit(duel, versions) else []
        if len(views) < limit:
            pairs = [pair for pair in await self._kept(versions) if pair.id not in judged_ids]
            views += [_shown(pair) for pair in pairs[: limit - len(views)]]
        can_ask = await asyncio.to_thread(self._contest.contenders) is not None
        reason = NO_VERSION if not versions else (ALL_JUDGED if can_ask else STILL_TESTED)
        return DuelOffer(views, len(judged_ids), None if views else reason, can_ask)

    async def judge(self, duel_id: str, choice: DuelChoice, rater: str, identity: Identity) -> DuelVerdict:
        """Store a judgement. Raises NotFound, Conflict, Unavailable."""
        async with self._judging:
            duel = await self._log.duel(duel_id)
            check_open(duel)
            versions = await asyncio.to_thread(self.contest.versions)
            pair = None
            if duel is None:
                pair = await self._pair(duel_id, versions)
                duel = await self._of(pair)
            if not _fit(duel, versions):
                raise Conflict(
                    "one of the two versions was rejected or deleted since they answered, so nothing is left to "
                    "compare: judge another pair",
                    code="version_gone",
                )
            if pair and choice != "equal":
                duel = replace(
                    duel, left=self._capture(pair, pair.left), right=self._capture(pair, pair.right)
                )
            duel = replace(duel, choice=choice, judged_at=time.time(), rater=rater)
            draft = None if choice == "equal" else _preference(duel, rater, identity)
            try:
                judgement = await self._log.judge_duel(duel, draft, new=pair is not None)
            except NotFound as error:
                raise NotFound(PAIR_GONE, param="id") from error
        if judgement.preference is None or draft is None:
            return DuelVerdict(judgement.duel, None, None)
        self._on_feedback(judgement.preference.feedback)
        better = await self._log.completion(draft.completion_id)
        worse = await self._log.worse(better.id, draft.preferred_over or "")
        return DuelVerdict(
            judgement.duel, judgement.preference.feedback, usability(draft, better, worse, rules=self._rules)
        )

    async def asked(self, duel: Duel) -> DuelView:
        """Remember what two versions answered to a prompt, and return it to be judged."""
        await self._log.add_duel(duel)
        return await self._asked(duel)

    async def _asked(self, duel: Duel) -> DuelView:
        left_answer, right_answer = [
            await self._log.completion(name) for name in (duel.left, duel.right) if name
        ]
        texts = (text_of(left_answer.reply or {}), text_of(right_answer.reply or {}))
        cut = (left_answer.ended.finish_reason == "length", right_answer.ended.finish_reason == "length")
        return DuelView(duel.id, left_answer.messages, texts, cut)

    async def _kept(self, versions: dict[int, AdapterVersion]) -> list[Pair]:
        """Return the gate's pairs of versions that are still there, the newest first, whose prompts are in the log."""
        pairs = await asyncio.to_thread(self._read, versions)
        quoted = {pair.prompt_id for pair in pairs if not is_ours(pair.prompt_id)}
        missing_ids = quoted - await self._log.existing(quoted)
        return [pair for pair in pairs if pair.prompt_id not in missing_ids]

    def _read(self, versions: dict[int, AdapterVersion]) -> list[Pair]:
        root, pairs = self.contest.registry.root, []
        for number in sorted(examples.versions(root, "pairs"), reverse=True):
            pairs += [read_pair(example) for example in examples.of(root, number, "pairs")]
        return [
            pair for pair in pairs if {pair.left.version, pair.right.version} <= {BASE_VERSION, *versions}
        ]

    async def _pair(self, duel_id: str, versions: dict[int, AdapterVersion]) -> Pair:
        """Raises NotFound."""
        pair = next((pair for pair in await self._kept(versions) if pair.id == duel_id), None)
        if pair is None:
            raise NotFound(PAIR_GONE, param="id")
        return pair

    async def _of(self, pair: Pair) -> Duel:
        own = is_ours(pair.prompt_id)
        asked_by = "" if own else (await self._log.completion(pair.prompt_id)).asked.caller
        return Duel(
            pair.id, pair.sampled_at, asked_by, pair.left.version, pair.right.version, left=None, right=None
        )

    def _capture(self, pair: Pair, side: Side) -> str:
        """Log a reply that the gate sampled as what it is, an answer of its version; return the completion's ID."""
        name, digest = self.contest.named(side.version), self.contest.base_digest
        request = {**pair.params, "model": name, "messages": pair.messages}
        message = {"role": "assistant", "content": side.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if side.finished else "length"}
        answer = {"object": "chat.completion", "model": name, "choices": [choice]}
        completion = Completion(
            completion_id(),
            RequestFacts(pair.sampled_at, "chat", name, SAMPLED_FOR_DUELS, sub_agent=True),
            Answerer(self.contest.upstream, name, side.version, digest),
            CompletionEnd("complete", 0.0, HTTPStatus.OK),
            wire=Wire(orjson.dumps(request), (orjson.dumps(answer),), "application/json"),
        )
        self._log.capture(completion)
        return completion.id


def _fit(duel: Duel, versions: dict[int, AdapterVersion]) -> bool:
    return {duel.left_version, duel.right_version} <= {BASE_VERSION, *versions}


def _shown(pair: Pair) -> DuelView:
    return DuelView(
        pair.id,
        pair.messages,
        (pair.left.text, pair.right.text),
        (not pair.left.finished, not pair.right.finished),
    )


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
