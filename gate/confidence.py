"""How sure an estimate is: quantiles, intervals and errors of shares. Without numpy; the gate has the bootstrap."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from statistics import NormalDist

ONE_SIDED, TWO_SIDED = 1.645, 1.96
"""Standard errors to a bound at 95 %."""


def nine_in_ten(lengths: Iterable[int]) -> int:
    """Return the length that nine in ten have at most; 0 without any."""
    ordered = sorted(lengths)
    return ordered[(9 * len(ordered) - 1) // 10] if ordered else 0


def wilson(count: int, of: int) -> tuple[float, float]:
    """Return the bounds of a share at 95 %: Wilson 1927, doi:10.1080/01621459.1927.10502953."""
    if not of:
        return 0.0, 1.0
    p, squared = count / of, TWO_SIDED**2 / of
    middle, reach = p + squared / 2, TWO_SIDED * sqrt(p * (1 - p) / of + squared / of / 4)
    return max(0.0, (middle - reach) / (1 + squared)), min(1.0, (middle + reach) / (1 + squared))


def order_error(share: float, good: int, bad: int) -> float:
    """Return the standard error of the share of (better, worse) pairs in the right order, by the number of each.

    Hanley and McNeil 1982, doi:10.1148/radiology.143.1.7063747.
    """
    first, second = share / (2 - share), 2 * share**2 / (1 + share)
    variance = share * (1 - share) + (good - 1) * (first - share**2) + (bad - 1) * (second - share**2)
    return sqrt(max(variance, 0.0) / (good * bad))


def student_t(confidence: float, freedom: int) -> float:
    """Return a quantile of the t distribution, right to a hundredth from three degrees of freedom on (too small below).

    The expansion of Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5.
    """
    z = NormalDist().inv_cdf(confidence)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))
