"""Simulate how much damage passes the gate: ``python -m bench.gate_power`` prints the tables of docs/measurements.md.

The replies are simulated as independent. Real replies of two versions to one prompt with the same seed are correlated,
so the gate sees real differences slightly more often than these tables say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from burnish.gate import GateLimits, allowance, forgetting_by_chance
from burnish.gate.questions import FACTS
from burnish.learner.sampling import MAX_PROMPTS, MAX_REQUESTS, MAX_WITH_TOOLS

DRAWS = 20_000
SHARES = (0.0, 0.02, 0.1, 0.3)
RISES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)
RISES_OF_BROKEN_CALLS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
KNOWN = (0.5, 0.9)
# Of the known facts that are lost when a version only learns a style, and as many found: the one healthy version of the
# small model that was looked at lost three of 43, and found one.
RESTLESS = 0.05
LOST = (0.0, 0.05, 0.1, 0.2, 0.4)
# Shares of the gate's requests for long answers that the incumbent follows: at least, and the small model (.96).
FOLLOWED = (0.33, 0.5, 0.78, 0.95)
FALLS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


def share_rejected(before: float, after: float, count: int, dice: np.random.Generator) -> float:
    """Return how often a true rise of a share of faulty replies is rejected."""
    limits = GateLimits()
    old, new = (dice.binomial(count, share, DRAWS) for share in (before, after))
    pairs, times = np.unique(np.stack([new, old]), axis=1, return_counts=True)
    rejected = [n / count > o / count + allowance(int(n), int(o), count, limits) for n, o in pairs.T]
    return float(times[rejected].sum() / DRAWS)


def facts_rejected(known: float, lost: float, dice: np.random.Generator) -> float:
    """Return how often it is seen that a share of the known facts is truly lost."""
    limits, count = GateLimits(), len(FACTS)
    knew = round(known * count)
    gone = dice.binomial(knew, lost + RESTLESS * (1 - lost), DRAWS)
    found = dice.binomial(count - knew, min(1.0, RESTLESS * known / (1 - known)), DRAWS)
    rejected = [
        (a - b) / count > limits.max_forgotten
        and forgetting_by_chance(int(a), int(b)) <= limits.forgetting_error
        for a, b in zip(gone, found, strict=True)
    ]
    return float(np.mean(rejected))


def requests_rejected(followed: float, fall: float, dice: np.random.Generator) -> float:
    """Return how often a true fall of the share of requests that are followed is rejected."""
    limits, count = GateLimits(), MAX_REQUESTS
    old, new = (dice.binomial(count, max(0.0, share), DRAWS) for share in (followed, followed - fall))
    return float(np.mean((old >= limits.min_followed * count) & (new < limits.min_kept * old)))


def main() -> None:
    """Print all tables."""
    dice = np.random.default_rng(0)
    for count in (24, MAX_PROMPTS):
        _print_shares(count, RISES, dice)
    print(f"\n{len(FACTS)} facts: of those known it loses …\n")
    print("| knows | " + " | ".join(f"{lost:.0%}" for lost in LOST) + " |\n" + "|---" * (1 + len(LOST)) + "|")
    for known in KNOWN:
        cells = [f"{facts_rejected(known, lost, dice):.2f}" for lost in LOST]
        print(f"| {known:.0%} | " + " | ".join(cells) + " |")
    _print_shares(MAX_WITH_TOOLS, RISES_OF_BROKEN_CALLS, dice)
    print(f"\n{MAX_REQUESTS} requests for a long answer: the share that is followed falls by …\n")
    _print_header(FALLS)
    for followed in FOLLOWED:
        cells = [f"{requests_rejected(followed, fall, dice):.2f}" for fall in FALLS]
        print(f"| {followed:.0%} | " + " | ".join(cells) + " |")


def _print_shares(count: int, rises: Sequence[float], dice: np.random.Generator) -> None:
    print(f"\n{count} replies: the share of faulty ones rises by …\n")
    _print_header(rises)
    for before in SHARES:
        cells = [f"{share_rejected(before, before + rise, count, dice):.2f}" for rise in rises]
        print(f"| {before:.0%} | " + " | ".join(cells) + " |")


def _print_header(changes: Sequence[float]) -> None:
    print("| before | " + " | ".join(f"{change:.0%}" for change in changes) + " |")
    print("|---" * (1 + len(changes)) + "|")


if __name__ == "__main__":
    main()
