"""May a candidate go live? A pure decision on evidence that others gathered.

Two things are asked. *Is it better?* shown by held-out ratings (it finds good ones likelier and bad ones less so than
the incumbent does), or by what the engine answers with it: those replies would please more, by a taste learnt from
all ratings, or they fit better what the users said in words. One proof will do, and none may speak against it. *Is it
sound?* shown by its distance from the bare model, by ordinary text, and by the share of replies that are empty,
repetitive, cut or off the topic.

A check fails, holds, or has too little to go by: one failure rejects, and too little leaves it to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from burnish.adapters.replies import near_empty, on_topic, repetitive, topics
from burnish.adapters.taste import RatedReply, Taste, learn_taste

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
    related: float | None = None
    """How much likelier the bare model finds it under its own prompt than under another (nats per token), where that
    was measured: of replies without a word of the question."""


@dataclass(frozen=True, slots=True)
class ToldApart:
    """How well the two replies to one prompt fit what the users said in words, by the bare model (nats per token)."""

    candidate_pmi: float
    incumbent_pmi: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the gate looks at."""

    held_out: tuple[HeldOutReply, ...]
    rated: tuple[RatedReply, ...]
    """All replies with a rating, also those that training saw: what pleases is a fact about the raters."""
    candidate: tuple[SampledReply, ...]
    incumbent: tuple[SampledReply, ...]
    words: tuple[ToldApart, ...]
    """A prompt each; empty when nobody said anything."""
    kl_per_token: float
    """KL(candidate ‖ bare model) per token on the candidate's own replies, nats."""
    general_loss: float
    """Mean negative log-likelihood per token of a neutral text under the candidate, nats."""
    general_loss_reference: float
    """Same under the bare model."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the gate draws its lines."""

    # Below, bounds say nothing: at one-sided 95 %, a candidate that only guesses passes in 16 of 100 cases with 2 + 2
    # conversations, in 9 with 3 + 3, in 7 with 8 + 8 (simulated, normal margins).
    min_held_out: int = 3
    """Conversations with good held-out replies, and with bad ones."""
    min_sampled: int = 8
    """Prompts that both versions answered."""
    # There are two ways to be proved better, so each gets half of the error of one chance in twenty …
    confidence: float = 0.975
    """Of the one-sided bounds of the proofs."""
    # … and a third of it where users said something in words, which is a third way.
    confidence_of_three: float = 0.983
    resamples: int = 4000
    seed: int = 0
    # Healthy runs reach .38–.47, collapsed ones .88, the best coherent one .56: necessary, not sufficient.
    max_kl_per_token: float = 0.6
    # Healthy runs raise it by up to .08 nats (perplexity 19.8 → 21.4).
    max_general_loss: float = 0.15
    # "They live in Antarctica" has no word of "Where do penguins live?", and is likelier there than elsewhere. Of 48
    # replies of the small model none had less than .45 under its own prompt; under a wrong one 2 had more than .4.
    min_related: float = 0.4
    """Nats per token; see SampledReply.related."""
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
    """Weigh the evidence: any failed check rejects; without one, unproved or unknown leaves it open."""
    limits = limits or Limits()
    if evidence.words:
        limits = replace(limits, confidence=limits.confidence_of_three)
    pairs = _pairs(evidence)
    proofs = (
        _ratings(evidence.held_out, limits),
        _taste(evidence.rated, pairs, limits),
        _words(evidence.words, limits),
    )
    soundness = (_kl(evidence, pairs, limits), *_shares(pairs, limits), _general(evidence, limits))
    checks = (*proofs, *soundness, _length(pairs))
    proved = [check.text for check in proofs if check.passed]
    failed = [check.text for check in (*proofs, *soundness) if check.passed is False]
    unknown = [check.text for check in soundness if check.passed is None]
    if failed:
        return Verdict(outcome="rejected", reason="; ".join(failed), checks=checks)
    if unknown or not proved:
        missing = unknown + ([] if proved else [check.text for check in proofs])
        return Verdict(outcome="undecided", reason="; ".join(dict.fromkeys(missing)), checks=checks)
    return Verdict(outcome="passed", reason="; ".join(proved), checks=checks)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between its bounds, each exceeded by chance in 1 − confidence of all cases."""

    lower: float
    estimate: float
    upper: float

    @property
    def sign(self) -> bool | None:
        """True: surely above 0; False: surely below; None: neither."""
        if self.lower > 0:
            return True
        return None if self.upper >= 0 else False


def preference_margin(held_out: Sequence[HeldOutReply], limits: Limits) -> Interval:
    """Return how much more the candidate agrees with the ratings than the incumbent, in nats per token.

    The margin is ½ (mean of d over good replies − mean of d over bad ones), d = candidate − incumbent log-likelihood
    per token, so both classes count the same; means are weighted by weight × |reward|. The bounds are the percentile
    bootstrap over conversations, drawn separately among those with good replies only, bad only and both, n − 1 of n
    at a time because percentile intervals are too narrow for small n (Hesterberg 2015, "What Teachers Should Know About
    the Bootstrap", doi:10.1080/00031305.2015.1089789). Both classes must be present.
    """
    strata: dict[tuple[bool, bool], list[NDArray[np.float64]]] = {}
    rows = _by_conversation(held_out)
    for row in rows:
        strata.setdefault((row[0] > 0, row[2] > 0), []).append(row)
    generator = np.random.default_rng(limits.seed)
    drawn = sum(_resampled(np.stack(strata[kind]), generator, limits) for kind in sorted(strata))
    return _interval(_balanced(np.sum(rows, axis=0)[None, :]), _balanced(np.asarray(drawn)), limits)


def _resampled(
    rows: NDArray[np.float64], generator: np.random.Generator, limits: Limits
) -> NDArray[np.float64]:
    """Return sums of n − 1 of n rows drawn with replacement, scaled to n: (n, K) → (B, K)."""
    size = max(1, len(rows) - 1)
    picked = generator.integers(len(rows), size=(limits.resamples, size))
    return np.asarray(rows[picked].sum(axis=1) * (len(rows) / size))


def _interval(estimate: NDArray[np.float64], drawn: NDArray[np.float64], limits: Limits) -> Interval:
    lower, upper = np.quantile(drawn, [1 - limits.confidence, limits.confidence])
    return Interval(float(lower), float(estimate[0]), float(upper))


def _by_conversation(held_out: Sequence[HeldOutReply]) -> list[NDArray[np.float64]]:
    """Return (weight good, weighted d good, weight bad, weighted d bad) of each conversation."""
    rows: dict[str, NDArray[np.float64]] = {}
    for reply in held_out:
        weight = reply.weight * abs(reply.reward)
        place = 0 if reply.reward > 0 else 2
        row = rows.setdefault(reply.conversation_id, np.zeros(4))
        row[place] += weight
        row[place + 1] += weight * (reply.candidate_logp - reply.incumbent_logp)
    return [rows[conversation] for conversation in sorted(rows)]


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
    margin = preference_margin(counted, limits)
    text = (
        f"on {len(counted)} held-out ratings it {_AGREES[margin.sign]} "
        f"({margin.estimate:+.3f} nats per token, {margin.lower:+.3f} to {margin.upper:+.3f})"
    )
    return Check(name="ratings", passed=margin.sign, value=margin.lower, limit=0.0, text=text)


_AGREES = {
    True: "agrees more with you than the version before",
    None: "does not reliably agree more with you than the version before",
    False: "agrees less with you than the version before",
}
_PLEASES = {
    True: "its replies please more",
    None: "its replies do not reliably please more",
    False: "its replies please less",
}


def _taste(rated: Sequence[RatedReply], pairs: Sequence[_Pair], limits: Limits) -> Check:
    taste = learn_taste(rated)
    if taste is None:
        text = "what you like does not show in length, form or address of a reply, so replies cannot be judged by it"
        return Check(name="taste", passed=None, value=None, limit=0.0, text=text)
    if len(pairs) < limits.min_sampled:
        text = f"too few replies were sampled to compare: {len(pairs)}, needed {limits.min_sampled}"
        return Check(name="taste", passed=None, value=None, limit=0.0, text=text)
    scores = np.array(
        [[_pleases(taste, reply) for reply in pair] for pair in pairs]
    )  # (n, [candidate, incumbent])
    gains = scores[:, :1] - scores[:, 1:]
    drawn = _resampled(gains, np.random.default_rng(limits.seed), limits)[:, 0] / len(pairs)
    gain = _interval(gains.mean(axis=0), drawn, limits)
    new, old = scores.mean(axis=0)
    text = (
        f"{_PLEASES[gain.sign]}: {new:.0%} of them should, before {old:.0%} "
        f"({gain.lower:+.0%} to {gain.upper:+.0%}; told from your ratings, {taste.ordered:.0%} right)"
    )
    return Check(name="taste", passed=gain.sign, value=gain.lower, limit=0.0, text=text)


def _pleases(taste: Taste, reply: SampledReply) -> float:
    return taste.pleases(reply.prompt, reply.text, reply.finished)


_FITS = {
    True: "its replies fit what you said better",
    None: "its replies do not reliably fit what you said better",
    False: "its replies fit what you said less",
}


def _words(words: Sequence[ToldApart], limits: Limits) -> Check:
    """Compare the replies as the model itself does when it is told the comments."""
    if len(words) < limits.min_sampled:
        text = "you have not said in words what was wrong, or too few replies were sampled to compare"
        return Check(name="words", passed=None, value=None, limit=0.0, text=text)
    gains = np.array([[each.candidate_pmi - each.incumbent_pmi] for each in words])  # (n, 1)
    if not np.isfinite(gains).all():
        text = "its replies have a probability that is no number"
        return Check(name="words", passed=False, value=None, limit=0.0, text=text)
    drawn = _resampled(gains, np.random.default_rng(limits.seed), limits)[:, 0] / len(words)
    gain = _interval(gains.mean(axis=0), drawn, limits)
    text = f"{_FITS[gain.sign]} ({gain.estimate:+.3f} nats per token, {gain.lower:+.3f} to {gain.upper:+.3f})"
    return Check(name="words", passed=gain.sign, value=gain.lower, limit=0.0, text=text)


_Pair = tuple[SampledReply, SampledReply]


def _pairs(evidence: Evidence) -> list[_Pair]:
    """Pair (candidate, incumbent) replies to the same prompt, in the order of its id."""
    new = {reply.prompt_id: reply for reply in evidence.candidate}
    old = {reply.prompt_id: reply for reply in evidence.incumbent}
    return [(new[prompt], old[prompt]) for prompt in sorted(new.keys() & old.keys())]


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
            "that have nothing to do with the question",
            [
                (_off_topic(new, stems, limits), _off_topic(old, stems, limits))
                for (new, old), stems in with_topic
            ],
            limits,
            enough=len(pairs) >= limits.min_sampled,
        ),
    ]


def _off_topic(reply: SampledReply, stems: frozenset[str], limits: Limits) -> bool:
    """No word of the question comes back, and the bare model doesn't see what it would have to do with it either."""
    related = reply.related is not None and reply.related > limits.min_related
    return not related and not on_topic(reply.text, stems)


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
