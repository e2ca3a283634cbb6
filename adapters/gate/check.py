"""One thing that the gate looked at, and where it draws its lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal["better", "sound", "reported"]
"""What a check is there for; what is only reported decides nothing."""


class Check(BaseModel):
    """One thing that was looked at."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    passed: bool | None = None
    """None: too little to go by, or reported only."""
    value: float | None = None
    limit: float | None = None
    text: str
    """In plain words."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the gate draws its lines. ``python -m bench.gate_power`` says what they let through."""

    # Below, bounds are the range of what was seen, and no level of confidence.
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
    # A healthy run of 32 ratings came to .0011, at a KL of .2. Noise of .023 has a KL of .34, and its replies are
    # short, on topic and wrong: nothing else here tells it from what was learnt.
    max_weight_change: float = 0.01
    # "They live in Antarctica" has no word of "Where do penguins live?", and is likelier there than elsewhere. Of 48
    # replies of the small model none had less than .45 under its own prompt; under a wrong one 2 had more than .4.
    min_related: float = 0.4
    """Nats per token; see SampledReply.related."""
    # With 48 replies an equal candidate is rejected in up to 3 of 100 cases a check; a limit of .05 lets twice as many
    # faults through before it says anything.
    max_worse: float = 0.02
    """By how much a share of sampled replies may truly be worse than the incumbent's."""
    # A difference that chance alone would exceed in one of 20 comparisons of equals.
    chance: float = 1.645
    """Standard errors of the difference that are granted on top, because a few prompts say little."""
    max_forgotten: float = 0.01
    """By how much the share of simple facts that are known may truly fall."""
    # The same one in 20.
    forgetting_error: float = 0.05
    """How unlikely chance must be as the reason for more than that."""
    # Of four facts, all could be lost by chance in one of 16 cases: with fewer than five nothing can be found out.
    min_known: int = 5
    """Facts that the incumbent knows."""
