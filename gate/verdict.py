"""The decision: all checks on the evidence, what they add up to, in words, and a few replies side by side.

The replies show a person what the figures mean. They are chosen by rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from burnish.config.hyperparameters import FrozenRecord
from burnish.gate.check import Check, GateLimits
from burnish.gate.evidence import Evidence, Pair, SampledReply, in_text
from burnish.gate.proofs import gains, proofs
from burnish.gate.replies import readable
from burnish.gate.reports import reports
from burnish.gate.rewards import believed_preference_model
from burnish.gate.soundness import FAULTS, soundness

Outcome = Literal["passed", "rejected", "undecided"]
ExampleKind = Literal["gain", "typical", "loss", "fault"]

# With five examples, a verdict stays below 8 kB: the history is read often.
MAX_PROMPT_CHARACTERS = 200
MAX_REPLY_CHARACTERS = 500
MAX_FAULTS = 2


class ExamplePair(FrozenRecord):
    """One prompt and what both versions answered; long texts are cut and end in "…"."""

    kind: ExampleKind
    why: str
    """Why it was chosen, for users."""
    prompt_id: str
    prompt: str
    before: str
    after: str


class Verdict(FrozenRecord):
    outcome: Outcome
    reason: str
    """The sentences of the checks that decided."""
    checks: tuple[Check, ...]
    examples: tuple[ExamplePair, ...] = ()
    """Replies of both versions to the same prompts."""


def judge(evidence: Evidence, limits: GateLimits | None = None) -> Verdict:
    """Decide: a failed check rejects; else a missing proof or a check without enough evidence leaves it undecided."""
    limits = limits or GateLimits()
    if evidence.comments:
        limits = replace(limits, confidence=limits.confidence_of_three)
    pairs, preference_model = evidence.pairs(), believed_preference_model(evidence.ratings)
    texts = in_text(pairs)
    checks = (
        *proofs(evidence, texts, preference_model, limits),
        *soundness(evidence, pairs, limits),
        *reports(evidence.ratings, pairs, limits),
    )
    outcome, reason = _decided(checks)
    failed = {check.name for check in checks if check.passed is False}
    examples = _examples(pairs, gains(evidence, texts, preference_model), failed, limits)
    return Verdict(outcome=outcome, reason=reason, checks=checks, examples=examples)


def _decided(checks: tuple[Check, ...]) -> tuple[Outcome, str]:
    proof_checks = [check for check in checks if check.kind == "better"]
    proved = [check.text for check in proof_checks if check.passed]
    failed = [check.text for check in checks if check.passed is False]
    unknown = [check.text for check in checks if check.kind == "sound" and check.passed is None]
    if failed:
        return "rejected", " ".join(failed)
    if unknown or not proved:
        missing = unknown + ([] if proved else [check.text for check in proof_checks])
        return "undecided", " ".join(dict.fromkeys(missing))
    return "passed", " ".join(proved)


def _examples(
    pairs: Sequence[Pair], gains: Mapping[str, float], failed: Collection[str], limits: GateLimits
) -> tuple[ExamplePair, ...]:
    """Return the pairs with the largest gain, a typical one and the largest loss, and one for each fault found.

    ``gains``: prompt ID → how much better the candidate's reply is; if empty, the last, middle and first pair.
    """
    faulty = [example for name in FAULTS if name in failed for example in _faulty(name, pairs, limits)]
    scored = sorted(
        (pair for pair in pairs if not gains or pair[0].prompt_id in gains),
        key=lambda pair: (gains.get(pair[0].prompt_id, 0.0), pair[0].prompt_id),
    )
    return (*_ranked(scored, gains), *faulty[:MAX_FAULTS])


def _ranked(scored: Sequence[Pair], gains: Mapping[str, float]) -> list[ExamplePair]:
    last, examples = len(scored) - 1, []
    for place in dict.fromkeys((last, len(scored) // 2, 0) if scored else ()):
        gain = gains.get(scored[place][0].prompt_id, 0.0)
        if gain > 0 and place == last:
            examples.append(_example("gain", "the largest gain", scored[place]))
        elif gain < 0 and place == 0:
            examples.append(_example("loss", "the largest loss", scored[place]))
        else:
            examples.append(_example("typical", "a typical pair", scored[place]))
    return examples


def _faulty(name: str, pairs: Sequence[Pair], limits: GateLimits) -> list[ExamplePair]:
    """Take the first pair in which only the candidate's reply has the fault."""
    words, fault = FAULTS[name]
    new = [pair for pair in pairs if fault(pair[0], limits) and not fault(pair[1], limits)]
    return [_example("fault", f"one of the {words}", pair) for pair in new[:1]]


def _example(kind: ExampleKind, why: str, pair: Pair) -> ExamplePair:
    new, old = pair
    return ExamplePair(
        kind=kind,
        why=why,
        prompt_id=new.prompt_id,
        prompt=_cut(new.prompt, MAX_PROMPT_CHARACTERS),
        before=_cut(_readable(old), MAX_REPLY_CHARACTERS),
        after=_cut(_readable(new), MAX_REPLY_CHARACTERS),
    )


def _readable(reply: SampledReply) -> str:
    text = [reply.text] if reply.text else []
    error = [f"(the engine couldn't read this as an answer: {reply.error})"] if reply.error else []
    return "\n".join([*text, *map(readable, reply.calls), *error])


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


TITLES = {
    "better": "is it better? one proof is enough, and no check may fail",
    "sound": "is it sound?",
    "reported": "other changes (for information)",
}
"""The kinds of checks, in the order in which they are shown."""


def in_words(verdict: dict[str, Any]) -> dict[str, Any]:
    """Return a stored verdict with its ``headline`` and ``groups``; each check has a ``kind`` and ``plain`` words.

    Verdicts of earlier releases lack kinds and plain words.
    """
    checks = [
        {"kind": "sound"} | check | {"plain": check.get("plain") or check["text"]}
        for check in verdict["checks"]
    ]
    groups = [
        {"kind": kind, "title": title}
        for kind, title in TITLES.items()
        if any(check["kind"] == kind for check in checks)
    ]
    headline = _headline(verdict["outcome"], checks)
    return verdict | {"checks": checks, "headline": headline, "groups": groups}


def _headline(outcome: str, checks: Sequence[dict[str, Any]]) -> str:
    proved = [check["plain"] for check in checks if check["kind"] == "better" and check["passed"]]
    failed = [check["plain"] for check in checks if check["passed"] is False]
    unknown = [check["plain"] for check in checks if check["kind"] == "sound" and check["passed"] is None]
    if outcome == "passed":
        return f"It passed the checks: {_first(proved)}"
    if outcome == "rejected":
        return f"It failed the checks: {_first(failed)}"
    if unknown:
        return f"The checks could not decide: {_first(unknown)}"
    return "The checks could not decide: none failed, but nothing proves that it is better"


def _first(reasons: Sequence[str]) -> str:
    if not reasons:  # a verdict of another gate
        return "it gave no reason"
    return reasons[0] + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")
