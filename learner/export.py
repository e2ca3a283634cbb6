"""Which ratings a run uses: the ready ones, those held out, those replayed; and samples of them. Pure functions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from burnish.adapters.manifest import BASE_VERSION
from burnish.proxy.log import Rating
from burnish.proxy.log.faults import FAULTS
from burnish.proxy.records import Answerer, RatedCompletion
from burnish.training.job import Objective, Sample
from burnish.training.presets import teaches

# A quarter is held out for the gate …
HELD_OUT_SHARE = 0.25
# … but the gate decides nothing with fewer conversations per class (gate.GateLimits.min_held_out),
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

    def of(self, rating: Rating) -> int | None:
        return self.behind(rating.served, instructed=rating.instructed)

    def behind(self, served: Answerer, *, instructed: bool) -> int | None:
        """Return the version that gave an answer (0: the base model), or None for any other model."""
        version = served.adapter_version
        if instructed:
            return None  # training sees another prompt
        if served.imported_from is not None:
            return None  # the numbers of another registry
        known = (None, self.base_digest)  # None: logged by a burnish that didn't store digests
        if served.base_digest not in known:
            return None
        return version if version == BASE_VERSION or version in self.versions else None


def left_out(ratings: Sequence[Rating], learnt: Collection[str]) -> dict[str, int]:
    """Count the rated answers that can't be learnt from and never were, by reason."""
    return dict(
        Counter(FAULTS[each.fault] for each in ratings if each.fault and each.rating_id not in learnt)
    )


@dataclass(frozen=True, slots=True)
class Chosen:
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
    ratings: Sequence[Rating], learnt: Collection[str], policies: Policies, *, learnable: bool
) -> list[Chosen]:
    """Choose the ready ones of all effective ratings, some of them held out; ``learnable``: as of ``hold_out``.

    ``learnt``: the feedback IDs that the live version has learnt. Their conversations are no longer held out.
    """
    ready = [each for each in ratings if not each.fault and each.rating_id not in learnt]
    seen = {each.conversation_id for each in ratings if each.rating_id in learnt}
    held_out = hold_out([each for each in ready if each.conversation_id not in seen], learnable=learnable)
    return [Chosen(each, policies.of(each), held_out=each.conversation_id in held_out) for each in ready]


def replayed(
    ratings: Sequence[Rating],
    learnt: Collection[str],
    policies: Policies,
    objective: Objective,
    count: int,
) -> list[Chosen]:
    """Choose up to ``count`` ratings to train on again: the latest learnt ones that the objective can use.

    Good and bad ones alternate while there are both.
    """
    old = (each for each in ratings if each.rating_id in learnt and not each.fault)
    latest = sorted(old, key=lambda each: each.completion_id, reverse=True)
    again = (Chosen(each, policies.of(each), held_out=False, replayed=True) for each in latest)
    useful = [each for each in again if teaches(each, objective)]
    kinds = [[each for each in useful if (each.reward > 0) is good] for good in (True, False)]
    return [each for turn in zip_longest(*kinds) for each in turn if each][:count]


def hold_out(ratings: Sequence[Rating], *, learnable: bool = False) -> frozenset[str]:
    """Choose conversations to hold out whole, about a quarter of those of each class.

    The order is a hash of the ID, so the next run chooses the same ones as far as the counts allow. At least half of
    each class is left for training. If too few of a class could be held out to judge by, none are.

    ``learnable``: a preference model can be fitted, so the gate can judge new replies by it. Then at most a quarter of
    each class is held out, and a class that is too rare is spared while the other one still supplies prompts.
    """
    classes: dict[str, set[str]] = {}
    for each in ratings:
        if each.reward:
            kinds = classes.setdefault(each.conversation_id, set())
            kinds.add(GOOD if each.reward > 0 else BAD)
    totals = {kind: sum(kind in kinds for kinds in classes.values()) for kind in (GOOD, BAD)}
    share = HELD_OUT_SHARE if learnable else MAX_HELD_OUT_SHARE
    most = {kind: int(total * share) for kind, total in totals.items()}
    if learnable:
        most = {kind: count if count >= MIN_HELD_OUT else 0 for kind, count in most.items()}
    elif min(most.values()) < MIN_HELD_OUT:
        return frozenset()
    wanted = {
        kind: min(most[kind], max(MIN_HELD_OUT, round(total * HELD_OUT_SHARE)))
        for kind, total in totals.items()
    }
    taken = dict.fromkeys(totals, 0)
    chosen = set()
    for conversation in sorted(classes, key=lambda name: hashlib.sha256(name.encode()).digest()):
        kinds = classes[conversation]
        useful = any(taken[kind] < wanted[kind] for kind in kinds)
        if useful and all(taken[kind] < most[kind] for kind in kinds):
            chosen.add(conversation)
            for kind in kinds:
                taken[kind] += 1
    return frozenset(chosen)


def sample(rated: RatedCompletion, chosen: Chosen) -> Sample:
    completion = rated.completion
    assert completion.reply is not None  # otherwise it has a fault
    return Sample(
        completion_id=rated.answer,
        conversation_id=completion.conversation_id,
        feedback_ids=rated.feedback_ids,
        messages=completion.messages,
        tools=tuple(completion.params.get("tools") or ()),
        reply=completion.reply,
        finished=completion.ended.finish_reason != "length",
        reward=rated.reward,
        weight=rated.weight,
        comment=rated.comment,
        correction=rated.correction,
        worse=rated.worse,
        behaviour_version=chosen.behaviour_version,
        held_out=chosen.held_out,
        replayed=chosen.replayed,
    )
