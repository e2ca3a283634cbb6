"""Is it better? Three ways to show it: held-out ratings, the preference_model learnt from all ratings, and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

import numpy as np

from burnish.adapters.gate.check import Check, Limits
from burnish.adapters.gate.evidence import Evidence, HeldOutReply, Pair, SampledReply, ToldApart
from burnish.adapters.gate.intervals import Interval, mean_gain, preference_margin
from burnish.adapters.preference_model import PreferenceModel

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
_FITS = {
    True: "its replies fit what you said better",
    None: "its replies do not reliably fit what you said better",
    False: "its replies fit what you said less",
}


def proofs(
    evidence: Evidence, pairs: Sequence[Pair], preference_model: PreferenceModel | None, limits: Limits
) -> list[Check]:
    """Return every proof that was tried; ``pairs`` are those of texts."""
    return [
        _ratings(evidence.held_out, limits),
        _preference_model(preference_model, pairs, limits),
        _words(evidence.words, limits),
    ]


def gains(
    evidence: Evidence, pairs: Sequence[Pair], preference_model: PreferenceModel | None
) -> Mapping[str, float]:
    """Return how much better the candidate's reply to each prompt is, by preference_model, else by words, else nothing.

    ``pairs`` are those of texts.
    """
    if preference_model:
        return {
            new.prompt_id: _pleases(preference_model, new) - _pleases(preference_model, old)
            for new, old in pairs
        }
    return {each.prompt_id: each.gain for each in evidence.words if isfinite(each.gain)}


def _ratings(held_out: Sequence[HeldOutReply], limits: Limits) -> Check:
    counted = [reply for reply in held_out if reply.weight * abs(reply.reward) > 0]
    good = len({reply.conversation_id for reply in counted if reply.reward > 0})
    bad = len({reply.conversation_id for reply in counted if reply.reward < 0})
    if min(good, bad) < limits.min_held_out:
        return _proof(
            "ratings",
            f"too few ratings were held out to judge by: conversations with good replies {good}, with bad ones {bad}, "
            f"needed {limits.min_held_out} of each",
        )
    if not all(isfinite(reply.candidate_logp - reply.incumbent_logp) for reply in counted):
        return _proof("ratings", "it gives held-out replies a probability that is no number", passed=False)
    margin = preference_margin(counted, limits)
    text = f"on {len(counted)} held-out ratings it {_AGREES[margin.sign]} ({_figures(margin)})"
    return _proof("ratings", text, passed=margin.sign, value=margin.lower)


def _preference_model(
    preference_model: PreferenceModel | None, pairs: Sequence[Pair], limits: Limits
) -> Check:
    if preference_model is None:
        text = "what you like does not show in length, form or address of a reply, so replies cannot be judged by it"
        return _proof("preference_model", text)
    if len(pairs) < limits.min_sampled:
        return _proof(
            "preference_model",
            f"too few replies were sampled to compare: {len(pairs)}, needed {limits.min_sampled}",
        )
    scores = np.array(
        [[_pleases(preference_model, reply) for reply in pair] for pair in pairs]
    )  # (n, [new, old])
    gain = mean_gain(scores[:, 0] - scores[:, 1], limits)
    new, old = scores.mean(axis=0)
    text = (
        f"{_PLEASES[gain.sign]}: {new:.0%} of them should, before {old:.0%} "
        f"({gain.lower:+.0%} to {gain.upper:+.0%}; told from your ratings, {preference_model.ordered:.0%} right)"
    )
    return _proof("preference_model", text, passed=gain.sign, value=gain.lower)


def _words(words: Sequence[ToldApart], limits: Limits) -> Check:
    """Compare the replies as the model itself does when it is told the comments."""
    if len(words) < limits.min_sampled:
        text = "you have not said in words what was wrong, or too few replies were sampled to compare"
        return _proof("words", text)
    found = [each.gain for each in words]
    if not all(map(isfinite, found)):
        return _proof("words", "its replies have a probability that is no number", passed=False)
    gain = mean_gain(found, limits)
    return _proof("words", f"{_FITS[gain.sign]} ({_figures(gain)})", passed=gain.sign, value=gain.lower)


def _proof(name: str, text: str, *, passed: bool | None = None, value: float | None = None) -> Check:
    return Check(name=name, kind="better", passed=passed, value=value, limit=0.0, text=text)


def _figures(found: Interval) -> str:
    return f"{found.estimate:+.3f} nats per token, {found.lower:+.3f} to {found.upper:+.3f}"


def _pleases(preference_model: PreferenceModel, reply: SampledReply) -> float:
    return preference_model.pleases(reply.prompt, reply.text, reply.finished)
