"""May a candidate go live? A pure decision on evidence that others gathered.

Two kinds of evidence, both about the version *as it will be served*: how it sees rated replies that were held out
of training, and what it answers next to the incumbent on the same prompts. A check fails, holds, or has too little
to go by; one failure rejects, and too little leaves the decision to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from burnish.adapters.replies import near_empty, on_topic, repetitive, topics

Outcome = Literal["passed", "rejected", "undecided"]


@dataclass(frozen=True, slots=True)
class HeldOutReply:
    """A rated reply that training never saw; log-probabilities are means per token (nats)."""

    conversation_id: str
    reward: float
    """In [-1, 1]; its sign is the class, its size counts as a weight."""
    weight: float
    candidate_logp: float
    incumbent_logp: float


@dataclass(frozen=True, slots=True)
class SampledReply:
    """A reply that the engine sampled from one of the two versions."""

    prompt_id: str
    """Same id = same prompt: the replies are compared in pairs."""
    prompt: str
    """Text of the last user message."""
    text: str
    finished: bool
    """False when a token limit cut it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the gate looks at."""

    held_out: tuple[HeldOutReply, ...]
    candidate: tuple[SampledReply, ...]
    incumbent: tuple[SampledReply, ...]
    kl_per_token: float
    """KL(candidate ‖ bare model) per token on the candidate's own replies, nats."""
    general_loss: float
    """Mean negative log-likelihood per token of a neutral text under the candidate, nats."""
    general_loss_reference: float
    """Same under the bare model."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the gate draws its lines."""

    # With 3 + 3 conversations, a candidate that only guesses passes the ratings check in 9 of 100 cases, with 2 + 2 in
    # 16, with 8 + 8 in 7 (simulated, normal margins).
    min_held_out: int = 3
    """Conversations with good held-out replies, and with bad ones."""
    min_sampled: int = 8
    """Prompts that both versions answered."""
    confidence: float = 0.95
    """Of the one-sided lower bound of the ratings check."""
    resamples: int = 4000
    seed: int = 0
    # Healthy runs reach .38–.47, collapsed ones .88, the best coherent one .56: necessary, not sufficient.
    max_kl_per_token: float = 0.6
    # Healthy runs raise it by up to .08 nats (perplexity 19.8 → 21.4).
    max_general_loss: float = 0.15
    max_worse: float = 0.05
    """By how much a share of sampled replies may truly be worse than the incumbent's."""
    # A difference that chance alone would exceed in one of 20 comparisons of equals.
    chance: float = 1.645
    """Standard errors of the difference that are granted on top, because a few prompts say little."""


class Check(BaseModel):
    """One thing that was looked at."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    passed: bool | None
    """None: too little to go by, or reported only."""
    judged: bool = True
    """False: reported only, it decides nothing."""
    value: float | None
    limit: float | None
    text: str
    """In plain words."""


class Verdict(BaseModel):
    """What the gate says, check by check."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Outcome
    reason: str
    """In plain words, one sentence."""
    checks: tuple[Check, ...]


def judge(evidence: Evidence, limits: Limits | None = None) -> Verdict:
    """Weigh the evidence: any failed check rejects; without one, any that has too little to go by leaves it open."""
    limits = limits or Limits()
    pairs = _pairs(evidence)
    checks = (
        _ratings(evidence.held_out, limits),
        _kl(evidence, pairs, limits),
        *_shares(pairs, limits),
        _general(evidence, limits),
        _length(pairs),
    )
    judged = [check for check in checks if check.judged]
    failed = [check.text for check in judged if check.passed is False]
    open_ = [check.text for check in judged if check.passed is None]
    if failed:
        return Verdict(outcome="rejected", reason="; ".join(failed), checks=checks)
    if open_:
        return Verdict(outcome="undecided", reason="; ".join(dict.fromkeys(open_)), checks=checks)
    return Verdict(outcome="passed", reason=checks[0].text, checks=checks)


def preference_margin(held_out: Sequence[HeldOutReply], limits: Limits) -> tuple[float, float]:
    """Return how much more the candidate agrees with the ratings than the incumbent, and its lower bound (nats/token).

    The margin is ½ (mean of d over good replies − mean of d over bad ones), d = candidate − incumbent log-likelihood
    per token, so both classes count the same; means are weighted by weight × |reward|. The bound is the percentile
    bootstrap over conversations, drawn separately among those with good replies only, bad only and both, n − 1 of n
    at a time because percentile intervals are too narrow for small n (Hesterberg 2015, "What Teachers Should Know About
    the Bootstrap", doi:10.1080/00031305.2015.1089789). Both classes must be present.
    """
    rows = _by_conversation(held_out)
    strata: dict[tuple[bool, bool], list[NDArray[np.float64]]] = {}
    for row in rows:
        strata.setdefault((row[0] > 0, row[2] > 0), []).append(row)
    generator = np.random.default_rng(limits.seed)
    drawn = np.zeros((limits.resamples, 4))  # (B, [weight good, sum good, weight bad, sum bad])
    for _, members in sorted(strata.items(), key=lambda item: item[0]):
        table = np.stack(members)  # (n, 4)
        size = max(1, len(members) - 1)
        picked = generator.integers(len(members), size=(limits.resamples, size))
        drawn += table[picked].sum(axis=1) * (len(members) / size)
    whole = np.sum(rows, axis=0)[None, :]
    lower = float(np.quantile(_balanced(drawn), 1 - limits.confidence))
    return float(_balanced(whole)[0]), lower


def _by_conversation(held_out: Sequence[HeldOutReply]) -> list[NDArray[np.float64]]:
    """Return (weight good, weighted d good, weight bad, weighted d bad) of each conversation."""
    rows: dict[str, NDArray[np.float64]] = {}
    for reply in held_out:
        weight = reply.weight * abs(reply.reward)
        place = 0 if reply.reward > 0 else 2
        row = rows.setdefault(reply.conversation_id, np.zeros(4))
        row[place] += weight
        row[place + 1] += weight * (reply.candidate_logp - reply.incumbent_logp)
    return list(rows.values())


def _balanced(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return (sums[:, 1] / sums[:, 0] - sums[:, 3] / sums[:, 2]) / 2


def _ratings(held_out: Sequence[HeldOutReply], limits: Limits) -> Check:
    counted = [reply for reply in held_out if reply.weight * abs(reply.reward) > 0]
    good = len({reply.conversation_id for reply in counted if reply.reward > 0})
    bad = len({reply.conversation_id for reply in counted if reply.reward < 0})
    if min(good, bad) < limits.min_held_out:
        text = (
            f"too few ratings were held out to judge by: conversations with good replies {good}, with bad ones {bad}, "
            f"needed {limits.min_held_out} of each"
        )
        return Check(name="ratings", passed=None, value=None, limit=0.0, text=text)
    if not all(isfinite(reply.candidate_logp - reply.incumbent_logp) for reply in counted):
        text = "it gives held-out replies a probability that is no number"
        return Check(name="ratings", passed=False, value=None, limit=0.0, text=text)
    margin, lower = preference_margin(counted, limits)
    passed = lower > 0
    verb = "agrees" if passed else "does not reliably agree"
    text = (
        f"on {len(counted)} held-out ratings it {verb} more with you than the version before "
        f"({margin:+.3f} nats per token, at least {lower:+.3f} with {limits.confidence:.0%} confidence)"
    )
    return Check(name="ratings", passed=passed, value=lower, limit=0.0, text=text)


_Pair = tuple[SampledReply, SampledReply]


def _pairs(evidence: Evidence) -> list[_Pair]:
    """Pair (candidate, incumbent) replies to the same prompt."""
    others = {reply.prompt_id: reply for reply in evidence.incumbent}
    return [(reply, others[reply.prompt_id]) for reply in evidence.candidate if reply.prompt_id in others]


def _kl(evidence: Evidence, pairs: Sequence[_Pair], limits: Limits) -> Check:
    value, limit = evidence.kl_per_token, limits.max_kl_per_token
    if not pairs:
        text = "its distance from the bare model could not be measured: no replies were sampled"
        return Check(name="kl", passed=None, value=None, limit=limit, text=text)
    passed = value <= limit
    verb = "moved" if passed else "moved too far"
    text = f"{verb} from the bare model: KL {value:.2f} nats per token, limit {limit:.2f}"
    return Check(name="kl", passed=passed, value=value, limit=limit, text=text)


def _shares(pairs: Sequence[_Pair], limits: Limits) -> list[Check]:
    with_topic = [(pair, stems) for pair in pairs if (stems := topics(pair[0].prompt))]
    return [
        _share("near_empty", "near-empty", _each(pairs, lambda reply: near_empty(reply.text)), limits),
        _share("repetitive", "repetitive", _each(pairs, lambda reply: repetitive(reply.text)), limits),
        _share("cut", "cut by the length limit", _each(pairs, lambda reply: not reply.finished), limits),
        _share(
            "off_topic",
            "without any word of the question",
            [
                (not on_topic(new.text, stems), not on_topic(old.text, stems))
                for (new, old), stems in with_topic
            ],
            limits,
            enough=len(pairs) >= limits.min_sampled,
        ),
    ]


def _each(pairs: Sequence[_Pair], fault: Callable[[SampledReply], bool]) -> list[tuple[bool, bool]]:
    return [(fault(new), fault(old)) for new, old in pairs]


def _share(
    name: str, words: str, faults: Sequence[tuple[bool, bool]], limits: Limits, *, enough: bool | None = None
) -> Check:
    """Compare how often a fault occurs: the candidate's share may exceed the incumbent's by ``allowance``."""
    if not (len(faults) >= limits.min_sampled if enough is None else enough):
        text = f"too few replies were sampled to compare: {len(faults)}, needed {limits.min_sampled}"
        return Check(name=name, passed=None, value=None, limit=None, text=text)
    if not faults:
        text = f"replies {words}: no sampled question has a word to look for"
        return Check(name=name, passed=True, value=None, limit=None, text=text)
    new, old = sum(new for new, _ in faults), sum(old for _, old in faults)
    limit = old / len(faults) + allowance(new, old, len(faults), limits)
    passed = new / len(faults) <= limit
    text = f"replies {words}: {new} of {len(faults)}, before {old}{'' if passed else ', too many more'}"
    return Check(name=name, passed=passed, value=new / len(faults), limit=min(limit, 1.0), text=text)


def allowance(new: int, old: int, count: int, limits: Limits) -> float:
    """Return by how much a share may be higher: ``max_worse``, and what chance explains among so few replies.

    The standard error of a difference of two shares, with the pooled share (Laplace: one success and one failure
    added) in both: √(2 p (1 − p) / n).
    """
    pooled = (new + old + 1) / (2 * count + 2)
    return limits.max_worse + limits.chance * sqrt(2 * pooled * (1 - pooled) / count)


def _general(evidence: Evidence, limits: Limits) -> Check:
    value, limit = evidence.general_loss - evidence.general_loss_reference, limits.max_general_loss
    passed = value <= limit
    verb = "still reads" if passed else "no longer reads"
    text = (
        f"{verb} ordinary text as the bare model does: loss {value:+.3f} nats per token, limit {limit:+.2f}"
    )
    return Check(name="general_text", passed=passed, value=value, limit=limit, text=text)


def _length(pairs: Sequence[_Pair]) -> Check:
    if not pairs:
        return Check(
            name="length", passed=None, judged=False, value=None, limit=None, text="no replies were sampled"
        )
    new, old = (fmean(len(pair[side].text) for pair in pairs) for side in (0, 1))
    ratio = new / old if old else float("inf")
    text = f"replies have {new:.0f} characters on average, before {old:.0f}"
    return Check(
        name="length",
        passed=None,
        judged=False,
        value=ratio if isfinite(ratio) else None,
        limit=None,
        text=text,
    )
