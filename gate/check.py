"""The result of one check, the limits of all checks, and sentences that several checks use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from burnish.config.hyperparameters import FrozenRecord
from burnish.gate.confidence import ONE_SIDED

Kind = Literal["better", "sound", "reported"]
"""What a check is for: to prove the candidate better, or sound; a reported one decides nothing."""


class Check(FrozenRecord):
    name: str
    kind: Kind
    passed: bool | None = None
    """None: too little evidence, or reported only."""
    value: float | None = None
    limit: float | None = None
    text: str
    """One or two sentences for users: the finding, the number and its limit."""
    plain: str = ""
    """The finding alone, if the figures mean something only to experts; empty: everybody can read ``text``."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """The gate's limits. ``python -m bench.gate_power`` computes how many faults they let through."""

    # With fewer, the bounds are just the range of the values.
    min_held_out: int = 3
    """Conversations with good held-out replies, and with bad ones."""
    min_sampled: int = 8
    """Prompts that both versions answered."""
    min_compared: int = 24
    """Prompts whose two replies the preference model compares."""
    min_attempts: int = 16
    """Held-out seeds that both versions played."""
    # There are two proofs, so each gets half of an error rate of 1 in 20 …
    confidence: float = 0.975
    """Of the one-sided bounds of the proofs."""
    # … and a third of it if users gave comments, because those make a third proof.
    confidence_of_three: float = 0.983
    resamples: int = 4000
    seed: int = 0
    # A careful version of 8 ratings (KL .08 a token, bf16) kept none of 24 sampled replies, of greedy ones 12 over
    # 20 tokens, 7 over 40; at a tenth of its strength 4 of 16 over 40. Under load, an engine's own replies differ.
    max_same: float = 0.9
    """Share of long replies that may be those of the version before, byte for byte; from here on it isn't applied."""
    min_told_apart: int = 160
    """Characters of a long reply, about 40 tokens."""
    # Healthy runs reach .38–.47, collapsed ones .88, the best coherent one .56: necessary, not sufficient.
    max_kl_per_token: float = 0.6
    # Healthy runs raise it by up to .08 nats (perplexity 19.8 → 21.4).
    max_general_loss: float = 0.15
    # A healthy run of 32 ratings came to .0011, at a KL of .2. Noise of .023 has a KL of .34, and its replies are
    # short, on topic and wrong: no other check finds that.
    max_weight_change: float = 0.01
    # "They live in Antarctica" has no word of "Where do penguins live?", but is likelier after it than after another
    # question. Of 48 replies of the small model none had less than .45 after its own prompt; 2 had more than .4 after
    # a wrong one.
    min_related: float = 0.4
    """Nats per token; see SampledReply.related."""
    # With 48 replies, each check rejects an equal candidate in up to 3 of 100 cases. A limit of .05 would let twice as
    # many faults through.
    max_worse: float = 0.02
    """By how much a share of sampled replies may truly be worse than the incumbent's."""
    # A difference that chance alone would exceed in one of 20 comparisons of equals.
    chance: float = ONE_SIDED
    """Standard errors of the difference that are added to the limit, because the prompts are few."""
    max_forgotten: float = 0.01
    """By how much the share of known simple facts may truly fall."""
    forgetting_error: float = 0.05
    """A larger fall counts only if chance causes it with less than this probability."""
    # All of four facts could be lost by chance in 1 of 16 cases, so fewer than five prove nothing.
    min_known: int = 5
    """Facts that the incumbent knows."""

    min_followed: float = 1 / 3
    """Share of requests for a long answer that the incumbent follows, at least; else there is nothing to compare."""
    # Comments such as "too long" cost some of them, whatever holds their scope; a stricter limit refused nearly all
    # versions that learnt from such.
    min_kept: float = 0.5
    """Share of these that the candidate follows, at least."""


def too_few_replies(count: int, needed: int) -> str:
    return f"Too few replies were sampled to compare: {count}, at least {needed} needed."


def share_text(what: str, new: int, old: int, count: int, remark: str = "") -> str:
    """Return e.g. "Repetitive replies: 3 of 48 (1 before)."."""
    return f"{what[0].upper()}{what[1:]}: {new} of {count} ({old} before){remark}."
