"""The decision: all checks on the evidence, and what they add up to."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict

from burnish.adapters.gate.check import Check, Limits
from burnish.adapters.gate.evidence import Evidence, in_text
from burnish.adapters.gate.examples import Example, examples
from burnish.adapters.gate.proofs import gains, proofs
from burnish.adapters.gate.reports import reports
from burnish.adapters.gate.soundness import soundness
from burnish.adapters.preference_model import fit_preference_model

Outcome = Literal["passed", "rejected", "undecided"]


class Verdict(BaseModel):
    """The gate's decision, and the checks behind it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Outcome
    reason: str
    """The sentences of the checks that decided."""
    checks: tuple[Check, ...]
    examples: tuple[Example, ...] = ()
    """Replies of both versions to the same prompts."""


def judge(evidence: Evidence, limits: Limits | None = None) -> Verdict:
    """Decide: a failed check rejects; else a missing proof or a check without enough evidence leaves it undecided."""
    limits = limits or Limits()
    if evidence.comments:
        limits = replace(limits, confidence=limits.confidence_of_three)
    pairs, preference_model = evidence.pairs(), fit_preference_model(evidence.rated)
    texts = in_text(pairs)
    checks = (
        *proofs(evidence, texts, preference_model, limits),
        *soundness(evidence, pairs, limits),
        *reports(evidence.rated, pairs, limits),
    )
    outcome, reason = _decided(checks)
    failed = {check.name for check in checks if check.passed is False}
    shown = examples(pairs, gains(evidence, texts, preference_model), failed, limits)
    return Verdict(outcome=outcome, reason=reason, checks=checks, examples=shown)


def _decided(checks: tuple[Check, ...]) -> tuple[Outcome, str]:
    tried = [check for check in checks if check.kind == "better"]
    proved = [check.text for check in tried if check.passed]
    failed = [check.text for check in checks if check.passed is False]
    unknown = [check.text for check in checks if check.kind == "sound" and check.passed is None]
    if failed:
        return "rejected", " ".join(failed)
    if unknown or not proved:
        missing = unknown + ([] if proved else [check.text for check in tried])
        return "undecided", " ".join(dict.fromkeys(missing))
    return "passed", " ".join(proved)
