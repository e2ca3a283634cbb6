"""Figures that decide nothing, but show a person whether a version is liked for a cheap trick.

Some raters do like flattery or lists, so these are reported, not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log1p
from statistics import StatisticsError, correlation, fmean
from types import MappingProxyType

from burnish.gate.check import Check, GateLimits, share_text
from burnish.gate.evidence import Pair, in_text
from burnish.gate.intervals import chance_of_a_share
from burnish.gate.replies import asks_back, flatters, marked_up, refuses
from burnish.gate.rewards import RatedReply

REPORT = partial(Check, kind="reported")
HABITS: Mapping[str, tuple[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "refusals": ("replies that refuse", refuses),
        "questions_back": ("replies that end in a question", asks_back),
        "flattery": ("replies that begin with flattery", flatters),
        "markup": ("replies with lists or other markup", marked_up),
    }
)
# A correlation over fewer ratings says nothing.
MIN_RATED = 8
# Below, length explains less than a tenth of the ratings.
MIN_CORRELATION = 0.3


def reports(ratings: Sequence[RatedReply], pairs: Sequence[Pair], limits: GateLimits) -> list[Check]:
    if not pairs:
        return [REPORT(name="length", text="No replies were sampled.")]
    texts = in_text(pairs)
    habits = [_habit(name, pairs, limits) for name in HABITS]
    return [_length(texts), *habits, _length_bias(ratings, texts), *_tool_use(pairs, limits)]


def _length(pairs: Sequence[Pair]) -> Check:
    if not pairs:
        return REPORT(name="length", text="No prompt was answered in text by both versions.")
    new, old = _lengths(pairs)
    text = f"Replies have {new:.0f} characters on average ({old:.0f} before)."
    return REPORT(name="length", value=new / old if old else None, text=text)


def _habit(name: str, pairs: Sequence[Pair], limits: GateLimits) -> Check:
    words, has = HABITS[name]
    new, old = (sum(not pair[side].called and has(pair[side].text) for pair in pairs) for side in (0, 1))
    count = len(pairs)
    significant = (new - old) / count > chance_of_a_share(new, old, count, limits)
    text = share_text(words, new, old, count, ", more than chance explains" if significant else "")
    return REPORT(name=name, value=new / count, text=text)


def _tool_use(pairs: Sequence[Pair], limits: GateLimits) -> list[Check]:
    """Report how often it calls a tool when it could, which may be right or wrong."""
    offered = [pair for pair in pairs if pair[0].tools]
    if not offered:
        return []
    new, old = (sum(pair[side].called for pair in offered) for side in (0, 1))
    count = len(offered)
    significant = abs(new - old) / count > chance_of_a_share(new, old, count, limits)
    remark = f", {'more' if new > old else 'fewer'} than chance explains" if significant else ""
    text = share_text("Tool calls to prompts with tools", new, old, count, remark)
    return [REPORT(name="tool_use", value=new / count, text=text)]


def _length_bias(ratings: Sequence[RatedReply], pairs: Sequence[Pair]) -> Check:
    """Report Pearson's r of log length and reward, and how the length of replies changed."""
    coefficient = _correlation([reply for reply in ratings if reply.reward * reply.weight != 0])
    if coefficient is None:
        return REPORT(name="length_bias", text="Too few ratings to say whether you rate by length.")
    finding = "Length hardly shows in your ratings"
    if abs(coefficient) >= MIN_CORRELATION:
        finding = f"You rate {'long' if coefficient > 0 else 'short'} answers better"
    change = _length_change(pairs)
    text = f"{finding} (correlation {coefficient:+.2f} over {len(ratings)} ratings){change}."
    return REPORT(name="length_bias", value=coefficient, text=text, plain=f"{finding}{change}.")


def _correlation(ratings: Sequence[RatedReply]) -> float | None:
    if len(ratings) < MIN_RATED:
        return None
    try:
        return correlation([log1p(len(reply.text)) for reply in ratings], [reply.reward for reply in ratings])
    except StatisticsError:  # all are of one length, or rated the same
        return None


def _length_change(pairs: Sequence[Pair]) -> str:
    new, old = _lengths(pairs) if pairs else (0, 0)
    if not old:
        return ""
    return f"; its replies are {abs(new / old - 1):.0%} {'longer' if new > old else 'shorter'}"


def _lengths(pairs: Sequence[Pair]) -> tuple[float, float]:
    return fmean(len(new.text) for new, _ in pairs), fmean(len(old.text) for _, old in pairs)
