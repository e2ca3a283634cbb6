"""From the log to a job: which ratings are ready, which are held out, how they look to the trainer. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from burnish.adapters.manifest import BASE_VERSION, Manifest
from burnish.adapters.preference_model import fit_preference_model
from burnish.proxy.learner.evidence import rated_replies
from burnish.proxy.records import Completion, Fault, RatedCompletion
from burnish.training.job import Objective, Sample
from burnish.training.presets import teaches

# A quarter judges, three quarters teach …
HELD_OUT_SHARE = 0.25
# … but the gate decides nothing with fewer conversations of a class than this (gate.Limits.min_held_out),
MIN_HELD_OUT = 3
# and at least half of a class must be left to learn from.
MAX_HELD_OUT_SHARE = 0.5

GOOD, BAD = "good", "bad"


@dataclass(frozen=True, slots=True)
class Policies:
    """Which models' probabilities the trainer can compute. A reply of any other one is off-policy."""

    base_digest: str
    """Of the base weights that it trains on."""
    versions: Collection[int] = ()
    """Adapters on them whose weights are at hand."""

    def behind(self, completion: Completion) -> int | None:
        """Return the version that gave an answer, 0 for the base model; None when it was some other model."""
        version = completion.served.adapter_version
        if (
            completion.instructions is not None
        ):  # answered under another prompt than the one that is learnt from
            return None
        if completion.served.base_digest not in (
            None,
            self.base_digest,
        ):  # None: logged before that was noted
            return None
        return version if version == BASE_VERSION or version in self.versions else None


FAULTS: Mapping[Fault, str] = {
    "incomplete": "the answer was cut off or never came",
    "error": "the engine answered with an error",
    "no_text": "the question or the answer has no text",
    "own_prompt": "the prompt was not a chat: raw, with a template or suffix, or after a context of tokens",
}


def unusable(rated: RatedCompletion) -> str | None:
    """Return why nothing can be learnt from an answer; None when something can."""
    return FAULTS[rated.fault] if rated.fault else None


def left_out(rated: Sequence[RatedCompletion], learnt: Collection[str]) -> dict[str, int]:
    """Count what was rated, was not learnt, and cannot be, by reason."""
    return dict(Counter(why for each in rated if each.rating_id not in learnt and (why := unusable(each))))


def learnt_by(version: int, manifests: Mapping[int, Manifest]) -> frozenset[str]:
    """Return the ids of all feedback that a version and its ancestors learnt from."""
    learnt: set[str] = set()
    while version != BASE_VERSION and version in manifests:
        learnt |= set(manifests[version].feedback_ids)
        version = manifests[version].parent
    return frozenset(learnt)


def ready(rated: Sequence[RatedCompletion], learnt: Collection[str]) -> list[RatedCompletion]:
    """Return what the next run would learn from: usable, and not learnt yet."""
    return [each for each in rated if not unusable(each) and each.rating_id not in learnt]


def samples(rated: Sequence[RatedCompletion], learnt: Collection[str], policies: Policies) -> list[Sample]:
    """Turn what is ready of all effective ratings into samples, some of them held out.

    ``learnt`` are the feedback ids that the live version has learnt; their conversations are not held out any more.
    """
    chosen = ready(rated, learnt)
    seen = {each.completion.conversation_id for each in rated if each.rating_id in learnt}
    preference_model = fit_preference_model(rated_replies(each for each in rated if not unusable(each)))
    held_out = hold_out(
        [each for each in chosen if each.completion.conversation_id not in seen],
        learnable=preference_model is not None,
    )
    return [_sample(each, policies, held_out=each.completion.conversation_id in held_out) for each in chosen]


def replayed(
    rated: Sequence[RatedCompletion],
    learnt: Collection[str],
    policies: Policies,
    objective: Objective,
    count: int,
) -> list[Sample]:
    """Choose up to ``count`` samples to go over again: learnt before, of use to the objective, and the latest ones.

    Good and bad ones take turns as long as there are both. None was ever held out: those are not learnt, but ready.
    """
    old = [each for each in rated if each.rating_id in learnt and not unusable(each)]
    latest = sorted(old, key=lambda each: each.completion.id, reverse=True)
    again = [_sample(each, policies, held_out=False, replayed=True) for each in latest]
    useful = [sample for sample in again if teaches(sample, objective)]
    kinds = [[sample for sample in useful if (sample.reward > 0) is good] for good in (True, False)]
    return [sample for turn in zip_longest(*kinds) for sample in turn if sample][:count]


def hold_out(rated: Sequence[RatedCompletion], *, learnable: bool = False) -> frozenset[str]:
    """Choose conversations to hold out whole, about a quarter of those of each class.

    They are taken in the order of a hash of their id, so that the same ones are chosen again next time as far as
    the counts allow, and never so many that less than half of a class would be left to learn from. Where that leaves
    too few of a class to judge by, none are: nothing would be gained by not learning from them.

    ``learnable``: a preference model can be fitted, so the gate can judge new replies by it. Then a rare class, whose
    every member is dear, is never held out by more than a quarter, and the other one is for the sake of its prompts.
    """
    classes: dict[str, set[str]] = {}
    for each in rated:
        if each.reward:
            kinds = classes.setdefault(each.completion.conversation_id, set())
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
    for conversation in sorted(classes, key=_hash):
        kinds = classes[conversation]
        useful = any(taken[kind] < wanted[kind] for kind in kinds)
        if useful and all(taken[kind] < most[kind] for kind in kinds):
            chosen.add(conversation)
            for kind in kinds:
                taken[kind] += 1
    return frozenset(chosen)


def _hash(conversation_id: str) -> bytes:
    return hashlib.sha256(conversation_id.encode()).digest()


def _sample(rated: RatedCompletion, policies: Policies, *, held_out: bool, replayed: bool = False) -> Sample:
    completion = rated.completion
    assert completion.reply is not None  # ready() left the others out
    return Sample(
        completion_id=completion.id,
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
        behaviour_version=policies.behind(completion),
        held_out=held_out,
        replayed=replayed,
    )
