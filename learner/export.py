"""Which ratings a run uses: the ready ones, those held out, those replayed; and samples of them. Pure functions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from burnish.adapters.hosts.detect import Kind
from burnish.adapters.manifest import BASE_VERSION
from burnish.learner.asked import TEMPLATE, as_asked, instructed
from burnish.proxy.log import Rating
from burnish.proxy.log.faults import in_words
from burnish.proxy.records import Answerer, Completion, RatedCompletion, Tokens
from burnish.proxy.surfaces.ends import finished
from burnish.training.job import Objective, PromptRead, Sample, UnratedPrompt
from burnish.training.presets import teaches

# A quarter is held out for the gate …
HELD_OUT_SHARE = 0.25
# … but the gate decides nothing with fewer conversations per class (gate.Limits.min_held_out),
MIN_HELD_OUT = 3
# and at least half of a class must be left for training.
MAX_HELD_OUT_SHARE = 0.5

GOOD, BAD = "good", "bad"


@dataclass(frozen=True, slots=True)
class Policies:
    """The models whose probabilities the trainer can compute. A reply of any other model is off-policy."""

    base_digest: str
    """Digest of the base weights of the training."""
    versions: Collection[int] = ()
    """Versions whose weights exist."""
    engine: Kind = "other"
    """What serves them."""

    def of(self, rating: Rating) -> int | None:
        return self.behind(rating.served, instructed=rating.instructed)

    def behind(self, origin: Answerer, *, instructed: bool) -> int | None:
        """Return the version that gave an answer (0: the base model), or None for any other model."""
        version = origin.adapter_version
        if instructed or not self.trained(origin):
            return None  # with instructions, training sees another prompt
        return version if version == BASE_VERSION or version in self.versions else None

    def trained(self, origin: Answerer) -> bool:
        """Return whether the base model that is trained gave an answer, with any version."""
        digests = (None, self.base_digest)  # None: logged by a burnish that didn't store digests
        of_ours = origin.imported_from is None and origin.adapter_version is not None
        return of_ours and origin.base_digest in digests


def left_out(ratings: Sequence[Rating], learnt_ids: Collection[str]) -> dict[str, int]:
    """Count the rated answers that can't be learnt from and never were, by reason."""
    return dict(
        Counter(
            in_words(rating.fault)
            for rating in ratings
            if rating.fault and rating.rating_id not in learnt_ids
        )
    )


@dataclass(frozen=True, slots=True)
class ChosenRating:
    """A rating that a run uses. Its texts are read when the job is written."""

    rating: Rating
    behaviour_version: int | None
    """As of Sample."""
    held_out: bool
    replayed: bool = False

    @property
    def reward(self) -> float:
        return self.rating.reward

    @property
    def comment(self) -> str | None:
        return self.rating.comment

    @property
    def correction(self) -> str | None:
        return self.rating.correction

    @property
    def worse(self) -> Sequence[str]:
        return self.rating.worse


def chosen(
    ratings: Sequence[Rating], learnt_ids: Collection[str], policies: Policies, *, learnable: bool
) -> list[ChosenRating]:
    """Choose the ready ones of all effective ratings, some of them held out; ``learnable``: as of ``hold_out``.

    ``learnt_ids``: the feedback IDs that the live version has learnt. Their conversations are no longer held out.
    """
    usable = [rating for rating in ratings if not rating.fault and rating.rating_id not in learnt_ids]
    conversations = {rating.conversation_id for rating in ratings if rating.rating_id in learnt_ids}
    fresh = [rating for rating in usable if rating.conversation_id not in conversations]
    held_out = hold_out(fresh, learnable=learnable)
    return [
        ChosenRating(rating, policies.of(rating), held_out=rating.conversation_id in held_out)
        for rating in usable
    ]


def replayed(
    ratings: Sequence[Rating],
    learnt_ids: Collection[str],
    policies: Policies,
    objective: Objective,
    count: int,
) -> list[ChosenRating]:
    """Choose up to ``count`` ratings to train on again: the latest learnt ones that the objective can use.

    Good and bad ones alternate while there are both.
    """
    old = (rating for rating in ratings if rating.rating_id in learnt_ids and not rating.fault)
    latest = sorted(old, key=lambda rating: rating.completion_id, reverse=True)
    again = (ChosenRating(rating, policies.of(rating), held_out=False, replayed=True) for rating in latest)
    useful = [choice for choice in again if teaches(choice, objective)]
    kinds = [[choice for choice in useful if (choice.reward > 0) is good] for good in (True, False)]
    return [choice for turn in zip_longest(*kinds) for choice in turn if choice][:count]


def hold_out(ratings: Sequence[Rating], *, learnable: bool = False) -> frozenset[str]:
    """Choose conversations to hold out whole, about a quarter of those of each class.

    The order is a hash of the ID, so the next run chooses the same ones as far as the counts allow. At least half of
    each class is left for training. If too few of a class could be held out to judge by, none are.

    ``learnable``: a preference model can be fitted, so the gate can judge new replies by it. Then at most a quarter of
    each class is held out, and a class that is too rare is spared while the other one still supplies prompts.
    """
    classes: dict[str, set[str]] = {}
    for rating in ratings:
        if rating.reward:
            kinds = classes.setdefault(rating.conversation_id, set())
            kinds.add(GOOD if rating.reward > 0 else BAD)
    totals = {kind: sum(kind in kinds for kinds in classes.values()) for kind in (GOOD, BAD)}
    share = HELD_OUT_SHARE if learnable else MAX_HELD_OUT_SHARE
    most = {kind: int(total * share) for kind, total in totals.items()}
    if learnable:
        most = {kind: count if count >= MIN_HELD_OUT else 0 for kind, count in most.items()}
    elif min(most.values()) < MIN_HELD_OUT:
        return frozenset()
    targets = {
        kind: min(most[kind], max(MIN_HELD_OUT, round(total * HELD_OUT_SHARE)))
        for kind, total in totals.items()
    }
    counts = dict.fromkeys(totals, 0)
    conversations = set()
    for conversation in sorted(classes, key=lambda name: hashlib.sha256(name.encode()).digest()):
        kinds = classes[conversation]
        useful = any(counts[kind] < targets[kind] for kind in kinds)
        if useful and all(counts[kind] < most[kind] for kind in kinds):
            conversations.add(conversation)
            for kind in kinds:
                counts[kind] += 1
    return frozenset(conversations)


def unrated_prompt(completion: Completion, engine: Kind) -> UnratedPrompt:
    completion = as_asked(completion, engine)
    return UnratedPrompt(
        completion_id=completion.id,
        messages=completion.messages,
        tools=tuple(completion.params.get("tools") or ()),
        template=completion.params[TEMPLATE],
    )


def prompt_read(completion: Completion, policies: Policies, tokens: Tokens | None) -> PromptRead | None:
    """Return what the engine told of the prompt of a completion as it was logged; None if another model answered."""
    if not policies.trained(completion.served):
        return None
    seen = instructed(completion)
    told: dict[str, Any] = {}
    if seen and completion.served.base_digest:  # else it may be another base of the same name
        told = {"tokens": completion.ended.prompt_tokens, "ids": tokens.prompt if tokens else ()}
        if completion.instructions:
            told["messages"] = as_asked(seen, policies.engine).messages
    way = f"{completion.asked.surface}{' in chat' if completion.served.in_chat else ''}"
    return PromptRead(format=way, **told)


def sample(
    answer: RatedCompletion, choice: ChosenRating, policies: Policies, tokens: Tokens | None = None
) -> Sample:
    """``tokens``: those of the completion, if they were captured."""
    completion = as_asked(answer.completion, policies.engine)
    assert completion.reply is not None  # otherwise it has a fault
    return Sample(
        completion_id=answer.answer,
        conversation_id=completion.conversation_id,
        feedback_ids=answer.feedback_ids,
        messages=completion.messages,
        tools=tuple(completion.params.get("tools") or ()),
        template=completion.params[TEMPLATE],
        reply=completion.reply,
        finished=finished(completion.ended.finish_reason, completion.params),
        read=prompt_read(answer.completion, policies, tokens),
        reward=answer.reward,
        weight=answer.weight,
        comment=None if choice.rating.comment_fault else answer.comment,
        correction=answer.correction,
        worse=tuple(
            as_asked(answer.completion._replace(reply=reply), policies.engine).reply or reply
            for reply in answer.worse
        ),
        behaviour_version=choice.behaviour_version,
        held_out=choice.held_out,
        replayed=choice.replayed,
    )
