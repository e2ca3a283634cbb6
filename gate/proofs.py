"""Is the candidate better? Three ways to show it: held-out ratings, the preference model, and the users' comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from burnish.gate.check import Check, GateLimits, too_few_replies
from burnish.gate.evidence import Attempted, CommentFit, Evidence, HeldOutReply, Pair
from burnish.gate.intervals import Interval, mean_gain, preference_margin, uncertain_gain
from burnish.gate.rewards import PlainReply, PreferenceModel
from burnish.gate.rewards.features import Vector

_AGREES = {
    True: "It agrees more with your {count} held-out ratings than the version before",
    None: "It doesn't reliably agree more with your {count} held-out ratings than the version before",
    False: "It agrees less with your {count} held-out ratings than the version before",
}
_JUDGED_BY = {
    "words": "judging by the words of replies that you rated",
    "form": "judging by the length and form of replies that you rated",
}
_LIKED = {
    True: "You would like its replies better, {judged}.",
    None: "It isn't clear that you would like its replies better, {judged}.",
    False: "You would like its replies less, {judged}.",
}
_EARNS = {
    True: "It gets more reward than the version before on {count} held-out seeds",
    None: "It doesn't reliably get more reward than the version before on {count} held-out seeds",
    False: "It gets less reward than the version before on {count} held-out seeds",
}
_FITS = {
    True: "Its replies fit your comments better than those of the version before",
    None: "Its replies don't reliably fit your comments better than those of the version before",
    False: "Its replies fit your comments less than those of the version before",
}


def proofs(
    evidence: Evidence, pairs: Sequence[Pair], preference_model: PreferenceModel | None, limits: GateLimits
) -> list[Check]:
    """Return one check for each way; ``pairs`` are those that both answered in text."""
    checks = [
        _ratings(evidence.held_out, limits),
        _preference_model(preference_model, pairs, limits),
        _comments(evidence.comments, limits),
    ]
    if evidence.attempts is None:
        return checks
    # What people said proves nothing of an agent's task; it may still speak against a version.
    return [_rewards(evidence.attempts, limits), *(check for check in checks if check.passed is False)]


def gains(
    evidence: Evidence, pairs: Sequence[Pair], preference_model: PreferenceModel | None
) -> Mapping[str, float]:
    """Return prompt ID → how much better the candidate's reply is: by the preference model, else by the comments.

    ``pairs`` are those that both answered in text.
    """
    if preference_model and pairs:
        differences, _ = _gains(preference_model, pairs)
        return {new.prompt_id: float(gain) for (new, _), gain in zip(pairs, differences, strict=True)}
    return {fit.prompt_id: fit.gain for fit in evidence.comments if isfinite(fit.gain)}


def _ratings(held_out: Sequence[HeldOutReply], limits: GateLimits) -> Check:
    counted = [reply for reply in held_out if reply.weight * abs(reply.reward) > 0]
    good = len({reply.conversation_id for reply in counted if reply.reward > 0})
    bad = len({reply.conversation_id for reply in counted if reply.reward < 0})
    if min(good, bad) < limits.min_held_out:
        return _proof(
            "ratings",
            f"Too few held-out ratings to judge by: {good} conversations with good replies and {bad} with bad ones, "
            f"{limits.min_held_out} of each needed.",
        )
    if not all(isfinite(reply.candidate_logp - reply.incumbent_logp) for reply in counted):
        text = "It is broken: the probability that it gives to a held-out reply isn't a number."
        return _proof("ratings", text, passed=False)
    margin = preference_margin(counted, limits)
    return _measured("ratings", _AGREES[margin.sign].format(count=len(counted)), margin)


def _preference_model(
    preference_model: PreferenceModel | None, pairs: Sequence[Pair], limits: GateLimits
) -> Check:
    if preference_model is None:
        text = "Your ratings don't follow from the words, length or form of replies, so those prove nothing."
        return _proof("preference_model", text)
    if len(pairs) < limits.min_compared:
        return _proof("preference_model", too_few_replies(len(pairs), limits.min_compared))
    differences, again = _gains(preference_model, pairs)
    gain = uncertain_gain(differences, again, limits)
    text = _LIKED[gain.sign].format(judged=_JUDGED_BY[preference_model.view])
    return _proof("preference_model", text, passed=gain.sign, figure=gain.lower)


def _rewards(attempts: Sequence[Attempted], limits: GateLimits) -> Check:
    if len(attempts) < limits.min_attempts:
        text = (
            f"Too few held-out seeds to judge by: {len(attempts)} were played with both versions, "
            f"{limits.min_attempts} needed."
        )
        return _proof("rewards", text)
    gain = mean_gain([attempt.gain for attempt in attempts], limits)
    figures = f"{gain.estimate:+.3f} an attempt ({gain.lower:+.3f} to {gain.upper:+.3f})"
    finding = _EARNS[gain.sign].format(count=len(attempts))
    return _proof("rewards", f"{finding}: {figures}.", passed=gain.sign, figure=gain.lower)


def _comments(comments: Sequence[CommentFit], limits: GateLimits) -> Check:
    """Compare how likely the base model finds each version's replies when it has read the comments."""
    if not comments:
        text = "You haven't said in words what was wrong, so there is nothing to compare with."
        return _proof("words", text)
    if len(comments) < limits.min_sampled:
        return _proof("words", too_few_replies(len(comments), limits.min_sampled))
    differences = [fit.gain for fit in comments]
    if not all(map(isfinite, differences)):
        return _proof("words", "It is broken: the probability of its replies isn't a number.", passed=False)
    gain = mean_gain(differences, limits)
    return _measured("words", _FITS[gain.sign], gain)


def _proof(name: str, text: str, *, passed: bool | None = None, figure: float | None = None) -> Check:
    return Check(name=name, kind="better", passed=passed, value=figure, limit=0.0, text=text)


def _measured(name: str, finding: str, interval: Interval) -> Check:
    """Return a proof by an interval: the finding with its figures, and without them in plain words."""
    figures = f"{interval.estimate:+.3f} nats per token ({interval.lower:+.3f} to {interval.upper:+.3f})"
    proof = _proof(name, f"{finding}: {figures}.", passed=interval.sign, figure=interval.lower)
    return proof.model_copy(update={"plain": f"{finding}."})


def _gains(model: PreferenceModel, pairs: Sequence[Pair]) -> tuple[Vector, Vector]:
    new, old = (
        [PlainReply(reply.prompt, reply.text, reply.finished) for reply in side]
        for side in zip(*pairs, strict=True)
    )
    return model.gains(new, old)
